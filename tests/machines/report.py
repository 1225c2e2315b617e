def text(results): return ""
