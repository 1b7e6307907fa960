package wire

import (
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/auditrelay/auditrelay/internal/testbed/pushes"
)

func message(fields ...[]byte) []byte {
	var out []byte
	for _, f := range fields {
		out = append(out, f...)
	}
	return out
}

func bytesField(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

func varintField(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func protoEntry(seconds, nanos uint64, line string, more ...[]byte) []byte {
	e := message(bytesField(1, message(varintField(1, seconds), varintField(2, nanos))), bytesField(2, []byte(line)))
	return bytesField(2, message(e, message(more...)))
}

func TestDecodeLokiProto(t *testing.T) {
	t.Parallel()
	pair := bytesField(3, message(bytesField(1, []byte("m")), bytesField(2, []byte("n"))))
	unknown := message(varintField(9, 5), bytesField(10, []byte("?")), protowire.AppendFixed64(protowire.AppendTag(nil, 11, protowire.Fixed64Type), 1))
	for name, stream := range map[string][]byte{
		"plain":       message(bytesField(1, []byte(`{a="b", c="d\n"}`)), protoEntry(1, 5, "x", pair), protoEntry(2, 0, "")),
		"labels last": message(protoEntry(1, 5, "x", pair), protoEntry(2, 0, ""), bytesField(1, []byte("{a=`b`,c=\"d\\n\",}"))),
		"unknown":     message(unknown, bytesField(1, []byte(`{ a = "b" , "c" = 'd\n' }`)), protoEntry(1, 5, "x", unknown, pair), varintField(3, 1234), protoEntry(2, 0, "", unknown)),
	} {
		var got collector
		require.NoError(t, DecodeLokiProto(message(bytesField(1, stream), unknown), testLimit, &got), name)
		assert.Empty(t, got.problems, name)
		assert.Equal(t, []pushes.Stream{streamOf(labels("a", "b", "c", "d\n"), entry(1_000_000_005, "x", "m", "n"), entry(2_000_000_000, ""))}, got.streams, name)
	}
}

func TestDecodeLokiProtoRefuses(t *testing.T) {
	t.Parallel()
	head := bytesField(1, []byte(`{a="b"}`))
	good := []pushes.Stream{streamOf(labels("a", "b"), entry(1_000_000_000, "good"))}
	for problem, entry := range map[string][]byte{
		"stream 1, entry 1: line: text is not valid UTF-8":                protoEntry(1, 0, "\xff"),
		"stream 1, entry 1: timestamp: it is out of range":                protoEntry(1, 1_000_000_000, "x"),
		"stream 1, entry 1: timestamp: it is out of":                      protoEntry(1<<62, 0, "x"),
		"stream 1, entry 1: it has no timestamp":                          bytesField(2, bytesField(2, []byte("x"))),
		"stream 1, entry 1: invalid protobuf: unexpected EOF":             bytesField(2, []byte{0x12, 0x7f, 'x'}),
		"stream 1, entry 1: a field has the wrong wire type":              bytesField(2, varintField(2, 1)),
		"stream 1, entry 1: timestamp: a field has the wrong":             bytesField(2, bytesField(1, bytesField(1, nil))),
		"stream 1, entry 1: structured metadata: text is not valid UTF-8": protoEntry(1, 0, "x", bytesField(3, bytesField(1, []byte{0xff}))),
	} {
		var got collector
		require.NoError(t, DecodeLokiProto(bytesField(1, message(head, entry, protoEntry(1, 0, "good"))), testLimit, &got))
		if assert.Len(t, got.problems, 1) {
			assert.Contains(t, got.problems[0], problem)
		}
		assert.Equal(t, good, got.streams)
	}
	for text, want := range map[string]string{
		`a="b"`: "not of the form", `{a=b}`: "not of the form", `{a="b}`: "not of the form", `{="b"}`: "not of the form",
		`{a="\q"}`: "invalid escape", `{a="\xff"}`: "not valid UTF-8", "{a=\"\xff\"}": "not valid UTF-8", `{a="b" c="d"}`: "not of the form",
		`{a="b"} x`: "not of the form",
	} {
		var got collector
		stream := message(bytesField(1, []byte(text)), protoEntry(1, 0, "x"), protoEntry(1, 0, "y"))
		require.NoError(t, DecodeLokiProto(bytesField(1, stream), testLimit, &got), text)
		require.Len(t, got.problems, 1, text)
		assert.Contains(t, got.problems[0], "stream 1: labels: ", text)
		assert.Contains(t, got.problems[0], want, text)
		assert.Equal(t, 2, got.refused, text)
	}
}

func TestDecodeLokiProtoFails(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string][]byte{
		"lying length":        {0x0a, 0x7f, 0x00},
		"endless varint":      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"field number 0":      {0x02, 0x00},
		"group without end":   {0x0b, 0x08, 0x01},
		"streams as a number": {0x08, 0x01},
		"lying stream length": bytesField(1, []byte{0x12, 0x20, 0x00}),
		"labels as a number":  bytesField(1, varintField(1, 3)),
		"nothing":             nil,
	} {
		var got collector
		assert.Error(t, DecodeLokiProto(raw, testLimit, &got), name)
		assert.Empty(t, got.streams, name)
	}
}

func TestUnsnappy(t *testing.T) {
	t.Parallel()
	plain := []byte("a line, a line, a line, a line, a line, a line")
	packed := snappy.Encode(nil, plain)
	out, err := Unsnappy(make([]byte, 0, 4), packed)
	require.NoError(t, err)
	assert.Equal(t, plain, out)
	for name, src := range map[string][]byte{
		"empty":        nil,
		"lying length": {0xff, 0xff, 0xff, 0x7f, 0x00, 0x00},
		"truncated":    packed[:len(packed)-2],
		"no varint":    {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"json":         []byte(`{"streams":[]}`),
	} {
		_, err := Unsnappy(nil, src)
		assert.ErrorIs(t, err, ErrSnappy, name)
	}
}
