; Two functions for LLVM's JIT: prints where they are, and waits for its stdin to end.
@format = private constant [7 x i8] c"%p %p\0A\00"
declare i32 @printf(i8*, ...)
declare i32 @fflush(i8*)
declare i64 @read(i32, i8*, i64)

define i32 @jitted_inner(i32 %x) noinline {
  %y = mul i32 %x, 3
  ret i32 %y
}

define i32 @jitted_outer(i32 %x) noinline {
  %y = call i32 @jitted_inner(i32 %x)
  %z = add i32 %y, 1
  ret i32 %z
}

define i32 @main() {
  %c = alloca i8
  %f = getelementptr [7 x i8], [7 x i8]* @format, i32 0, i32 0
  call i32 (i8*, ...) @printf(i8* %f, i32 (i32)* @jitted_inner, i32 (i32)* @jitted_outer)
  call i32 @fflush(i8* null)
  call i64 @read(i32 0, i8* %c, i64 1)
  %r = call i32 @jitted_outer(i32 3)
  ret i32 0
}
