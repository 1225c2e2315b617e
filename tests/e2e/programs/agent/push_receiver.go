// SPDX-License-Identifier: Apache-2.0

// A receiver of profiles, as strict as Pyroscope: what it accepts was parsed by pprof's own library.
// usage: push_receiver [-cert FILE -key FILE] [-token TOKEN] ADDRESS
// A line on stdin is how requests are answered from then on: "ok", a status with an optional header
// ("429 Retry-After: 2"), or hang, close, reset, half, huge. Prints a JSON line for each.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/pprof/profile"
)

var (
	lock sync.Mutex
	mode = "ok"
)

type accepted struct {
	API       string            `json:"api"`
	ID        string            `json:"id"`
	Labels    map[string]string `json:"labels"`
	Types     []string          `json:"types"`
	Sums      map[string]int64  `json:"sums"`
	Functions []string          `json:"functions"`
	Time      int64             `json:"time"`
}

func say(what interface{}) {
	lock.Lock()
	defer lock.Unlock()
	text, _ := json.Marshal(what)
	os.Stdout.Write(append(text, '\n'))
}

func current() string {
	lock.Lock()
	defer lock.Unlock()
	return mode
}

// Calls field for each field of a protobuf message, all of which must be of the type LEN.
func fields(data []byte, field func(number uint64, value []byte) error) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 || key&7 != 2 {
			return fmt.Errorf("a field has the key %d", key)
		}
		size, m := binary.Uvarint(data[n:])
		if m <= 0 || size > uint64(len(data)-n-m) {
			return fmt.Errorf("field %d ends beyond its message", key>>3)
		}
		start := n + m
		if err := field(key>>3, data[start:start+int(size)]); err != nil {
			return err
		}
		data = data[start+int(size):]
	}
	return nil
}

func labelTake(labels map[string]string, pair []byte) error {
	var texts [3]string
	err := fields(pair, func(number uint64, value []byte) error {
		if number > 2 {
			return fmt.Errorf("a label has field %d", number)
		}
		texts[number] = string(value)
		return nil
	})
	if err != nil {
		return err
	}
	if _, twice := labels[texts[1]]; twice {
		return fmt.Errorf("label %q is there twice", texts[1])
	}
	labels[texts[1]] = texts[2]
	return nil
}

var (
	nameForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	idForm   = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	appForm  = regexp.MustCompile(`^([a-zA-Z0-9._/-]+)\{((?:[a-zA-Z_]+=[a-zA-Z0-9._/-]+,?)+)\}$`)
)

func labelsCheck(labels map[string]string) error {
	for name, value := range labels {
		if !nameForm.MatchString(name) || value == "" || len(value) > 128 || !utf8.ValidString(value) {
			return fmt.Errorf("label %q is %q", name, value)
		}
	}
	if labels["service_name"] == "" {
		return fmt.Errorf("there is no service_name")
	}
	return nil
}

func profileTake(raw []byte, out *accepted) error {
	parsed, err := profile.ParseData(raw)
	if err != nil {
		return err
	}
	if err := parsed.CheckValid(); err != nil {
		return err
	}
	if len(parsed.Sample) == 0 || parsed.TimeNanos == 0 {
		return fmt.Errorf("%d samples at %d", len(parsed.Sample), parsed.TimeNanos)
	}
	out.Time = parsed.TimeNanos
	out.Sums = map[string]int64{}
	for i, kind := range parsed.SampleType {
		out.Types = append(out.Types, kind.Type+" "+kind.Unit)
		for _, sample := range parsed.Sample {
			out.Sums[kind.Type] += sample.Value[i]
		}
	}
	for _, function := range parsed.Function {
		out.Functions = append(out.Functions, function.Name)
	}
	return nil
}

func push(request *http.Request, body []byte, out *accepted) error {
	if kind := request.Header.Get("Content-Type"); kind != "application/proto" {
		return fmt.Errorf("Content-Type is %q", kind)
	}
	var raw []byte
	profiles, series := 0, 0
	err := fields(body, func(number uint64, value []byte) error {
		if series++; number != 1 {
			return fmt.Errorf("the request has field %d", number)
		}
		return fields(value, func(number uint64, value []byte) error {
			if number == 1 {
				return labelTake(out.Labels, value)
			} else if number != 2 {
				return fmt.Errorf("a series has field %d", number)
			}
			profiles++
			return fields(value, func(number uint64, value []byte) error {
				if number == 1 {
					raw = value
				} else if number == 2 {
					out.ID = string(value)
				} else {
					return fmt.Errorf("a sample has field %d", number)
				}
				return nil
			})
		})
	})
	if err != nil {
		return err
	}
	if profiles != 1 || series != 1 || !idForm.MatchString(out.ID) || out.Labels["__name__"] != "memory" {
		return fmt.Errorf("%d profiles, %d series, id %q, name %q", profiles, series, out.ID, out.Labels["__name__"])
	}
	return profileTake(raw, out)
}

func ingest(request *http.Request, body []byte, out *accepted) error {
	query := request.URL.Query()
	from, err := strconv.ParseInt(query.Get("from"), 10, 64)
	if err != nil {
		return err
	}
	until, err := strconv.ParseInt(query.Get("until"), 10, 64)
	if err != nil {
		return err
	}
	parts := appForm.FindStringSubmatch(query.Get("name"))
	if query.Get("format") != "pprof" || from >= until || time.Now().Unix()-until > 3600 || parts == nil {
		return fmt.Errorf("the query is %q", request.URL.RawQuery)
	}
	out.Labels["service_name"] = parts[1]
	for _, pair := range strings.Split(parts[2], ",") {
		words := strings.SplitN(pair, "=", 2)
		out.Labels[words[0]] = words[1]
	}
	out.ID = fmt.Sprintf("%x", sha256.Sum256(body))
	return profileTake(body, out)
}

func answer(writer http.ResponseWriter, request *http.Request, token string) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 64<<20))
	if err != nil {
		return
	}
	how := current()
	say(map[string]interface{}{"attempt": how, "at": time.Now().UnixNano(), "path": request.URL.Path})
	switch {
	case token != "" && request.Header.Get("Authorization") != "Bearer "+token:
		http.Error(writer, "no token", 401)
		return
	case how == "ok" || how == "huge":
	case how == "hang":
		<-request.Context().Done()
		return
	case how == "close" || how == "reset" || how == "half":
		connection, buffer, _ := writer.(http.Hijacker).Hijack()
		if how == "half" {
			buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Len")
			buffer.Flush()
		}
		if how == "reset" {
			connection.(*net.TCPConn).SetLinger(0)
		}
		connection.Close()
		return
	default:
		words := strings.SplitN(how, " ", 3)
		status, _ := strconv.Atoi(words[0])
		if len(words) == 3 {
			writer.Header().Set(strings.TrimSuffix(words[1], ":"), words[2])
		}
		http.Error(writer, "not now", status)
		return
	}
	out := accepted{Labels: map[string]string{}}
	switch {
	case request.Method != "POST":
		err = fmt.Errorf("the method is %s", request.Method)
	case request.URL.Path == "/base/push.v1.PusherService/Push":
		out.API = "push"
		err = push(request, body, &out)
	case request.URL.Path == "/base/ingest":
		out.API = "ingest"
		err = ingest(request, body, &out)
	default:
		err = fmt.Errorf("the path is %s", request.URL.Path)
	}
	if err == nil {
		err = labelsCheck(out.Labels)
	}
	if err != nil {
		say(map[string]string{"refused": err.Error()})
		http.Error(writer, err.Error(), 400)
		return
	}
	say(out)
	for i := 0; how == "huge" && i < 1000; i++ {
		if _, err := writer.Write(make([]byte, 65536)); err != nil {
			return
		}
	}
}

func main() {
	certificate := flag.String("cert", "", "PEM")
	key := flag.String("key", "", "PEM")
	token := flag.String("token", "", "of each request")
	flag.Parse()
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			lock.Lock()
			mode = lines.Text()
			lock.Unlock()
			say(map[string]string{"mode": lines.Text()})
		}
		os.Exit(0)
	}()
	listener, err := net.Listen("tcp", flag.Arg(0))
	if err != nil {
		panic(err)
	}
	say(map[string]string{"mode": "ok"})
	server := http.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		answer(writer, request, *token)
	})}
	if *certificate != "" {
		server.ServeTLS(listener, *certificate, *key)
	} else {
		server.Serve(listener)
	}
}
