package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
)

// bomb is a push that is small to send and large to decode.
type bomb struct {
	name                             string
	path, contentType, contentEncode string
	body                             []byte
}

const (
	lokiPath    = "/loki/api/v1/push"
	datadogPath = "/api/v2/logs"
	olderPath   = "/v1/input"
	asJSON      = "application/json"
	asProto     = "application/x-protobuf"
)

// shape makes a body of about n bytes before compression.
type shape struct {
	name, path, contentType string
	make                    func(rng *rand.Rand, n int) []byte
}

// repeated repeats text to about n bytes between head and tail.
func repeated(head, text, tail string) func(*rand.Rand, int) []byte {
	return func(_ *rand.Rand, n int) []byte {
		body := append([]byte(head), bytes.Repeat([]byte(text), max(1, n/len(text)))...)
		return append(bytes.TrimSuffix(body, []byte(",")), tail...)
	}
}

// field encodes a length-delimited field of a protobuf message.
func field(n protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), data)
}

// protoEntry is an entry with a time, a line, and the given rest.
func protoEntry(more []byte) []byte { return append([]byte{0x0a, 2, 8, 1, 0x12, 2, 'h', 'i'}, more...) }

// protoStream is a push of one stream.
func protoStream(labels string, entries []byte) []byte {
	return field(1, append(field(1, []byte(labels)), entries...))
}

func lokiShapes() []shape {
	times := func(piece string, n int) []byte { return bytes.Repeat([]byte(piece), max(1, n/len(piece))) }
	proto := func(name string, encode func(n int) []byte) shape {
		return shape{name, lokiPath, asProto, func(_ *rand.Rand, n int) []byte { return encode(n) }}
	}
	return []shape{
		proto("empty metadata pairs", func(n int) []byte { return protoStream(`{a="b"}`, field(2, protoEntry(times("\x1a\x00", n)))) }),
		proto("label text", func(n int) []byte { return protoStream("{"+string(times(`a="",`, n))+"}", field(2, protoEntry(nil))) }),
		proto("an escaped label", func(n int) []byte { return protoStream(`{a="`+string(times(`\n`, n))+`"}`, field(2, protoEntry(nil))) }),
		proto("streams without entries", func(n int) []byte { return times("\x0a\x00", n) }),
		proto("entries without anything", func(n int) []byte { return protoStream(`{a="b"}`, times("\x12\x00", n)) }),
		proto("gigantic varints", func(n int) []byte { return times("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", n) }),
		proto("unknown fields", func(n int) []byte {
			return protoStream(`{}`, times("\xf8\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", n))
		}),
		{"repeated names", lokiPath, asJSON, repeated(`{"streams":[{"stream":{`, `"":"",`, `},"values":[["1","x"]]}]}`)},
		{"metadata", lokiPath, asJSON, repeated(`{"streams":[{"stream":{},"values":[["1","x",{`, `"":"",`, `}]]}]}`)},
		{"streams of nothing", lokiPath, asJSON, repeated(`{"streams":[`, `{},`, `]}`)},
		{"streams without values", lokiPath, asJSON, repeated(`{"streams":[`, `{"stream":{},"values":[]},`, `]}`)},
		{"empty entries", lokiPath, asJSON, repeated(`{"streams":[{"stream":{},"values":[`, `["1",""],`, `]}]}`)},
		{"wrong entries", lokiPath, asJSON, repeated(`{"streams":[{"stream":{},"values":[`, `[],`, `]}]}`)},
		{"repeated keys", lokiPath, asJSON, repeated(`{"streams":[{`, `"stream":{},`, `"values":[["1","x"]]}]}`)},
		{"deep arrays", lokiPath, asJSON, repeated(`{"x":`, `[`, ``)},
		{"deep objects", lokiPath, asJSON, repeated(`{"streams":`, `{"a":`, ``)},
		{"a line of escapes", lokiPath, asJSON, repeated(`{"streams":[{"stream":{},"values":[["1","`, `\u0041`, `"]]}]}`)},
	}
}

func datadogShapes() []shape {
	const event = `"message":"{\"event_id\":\"1\"}",`
	return []shape{
		{"tags", datadogPath, asJSON, repeated(`{"message":"x","ddtags":"`, `a,`, `"}`)},
		{"escaped tags", datadogPath, asJSON, repeated(`{"message":"x","ddtags":"`, `\n,`, `"}`)},
		{"repeated service", olderPath, asJSON, repeated(`{"message":"x",`, `"service":"",`, `"a":1}`)},
		{"attributes next to an event", datadogPath, asJSON, repeated(`{`+event, `"":1,`, `"a":1}`)},
		{"escaped attributes", datadogPath, asJSON, repeated(`{`+event, `"\u0061":"\u0061",`, `"a":1}`)},
		{"an escaped message", olderPath, asJSON, repeated(`{"message":"{`, `\n`, `"}`)},
		{"an escaped key", datadogPath, asJSON, repeated(`{"`, `\n`, `":1}`)},
		{"objects line by line", olderPath, asJSON, repeated(``, "{}\n", ``)},
		{"an array of objects", datadogPath, asJSON, repeated(`[`, `{},`, `]`)},
		{"an array of numbers", datadogPath, asJSON, repeated(`[`, `1,`, `]`)},
		{"deep attributes", datadogPath, asJSON, repeated(`{"a":`, `{"a":`, ``)},
		{"a long number", datadogPath, asJSON, repeated(`{"timestamp":`, `9`, `}`)},
		{"spaces", datadogPath, asJSON, repeated(`[`, ` `, `]`)},
		{"tags in the URL", datadogPath + "?ddtags=" + strings.Repeat("a,", 4000), asJSON, repeated(`[`, `{},`, `]`)},
		{"a URL of parameters", datadogPath + "?" + strings.Repeat("a&", 4000), asJSON, repeated(`[`, `{},`, `]`)},
	}
}

// makeBomb draws a bomb of some decompressed mebibytes, most at most.
func makeBomb(rng *rand.Rand, shapes []shape, most int) (bomb, error) {
	s := shapes[rng.IntN(len(shapes))]
	encoding := []string{"", "gzip", "gzip", "gzip", "deflate", "raw", "zstd", "zstd"}[rng.IntN(8)]
	n := 1 << rng.IntN(27)
	if encoding == "" && s.contentType != asProto { // it is sent as it is
		n = min(n, 4<<20)
	}
	body := s.make(rng, min(n, most))
	if s.contentType == asProto {
		body = snappy.Encode(nil, body)
		if rng.IntN(20) == 0 { // claims to decompress to 4 GiB
			body = append([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, body...)
		}
	}
	body, err := compressed(rng, encoding, body)
	if err != nil {
		return bomb{}, err
	}
	if rng.IntN(20) == 0 {
		body = body[:rng.IntN(len(body)+1)]
	}
	header := strings.Replace(encoding, "raw", "deflate", 1)
	return bomb{fmt.Sprintf("%s, %d bytes, %q", s.name, n, encoding), s.path, s.contentType, header, body}, nil
}

// compressed compresses a body; raw is deflate without zlib's frame.
func compressed(rng *rand.Rand, encoding string, body []byte) ([]byte, error) {
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		w, err = gzip.NewWriterLevel(&out, gzip.BestSpeed)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw":
		w, err = flate.NewWriter(&out, flate.BestSpeed)
	case "zstd":
		w, err = zstd.NewWriter(&out, zstd.WithWindowSize(1<<(10+rng.IntN(15))), zstd.WithEncoderConcurrency(1))
	default:
		return body, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = w.Write(body)
	if e := w.Close(); err == nil {
		err = e
	}
	return out.Bytes(), err
}
