package kafka

import (
	"bytes"
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled is a value of a type with lists of two elements, texts and numbers.
func filled(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[protocol.RecordSet]():
		v.Set(reflect.ValueOf(protocol.RecordSet{Version: 2, Records: protocol.NewRecordReader(protocol.Record{Value: protocol.NewBytes([]byte("v"))})}))
	case kind == reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Name != "_" {
				v.Field(i).Set(filled(t.Field(i).Type))
			}
		}
	case kind == reflect.String:
		v.SetString("text")
	case kind == reflect.Slice:
		v.Set(reflect.Append(v, filled(t.Elem()), filled(t.Elem())))
	case kind == reflect.Bool:
		v.SetBool(true)
	case kind == reflect.Uint8:
		v.SetUint(0x42)
	default:
		v.SetInt(0x42)
	}
	return v
}

// Each answer that kafka-go writes passes the scan, in each version, and one that is cut does not.
func TestAnswersPass(t *testing.T) {
	t.Parallel()
	for key, of := range answers {
		for version := key.MinVersion(); version <= key.MaxVersion(); version++ {
			var b bytes.Buffer
			require.NoError(t, protocol.WriteResponse(&b, version, 7, filled(of).Addr().Interface().(protocol.Message)))
			answer := b.Bytes()[4:]
			require.NoError(t, check(answer, key, version), "%s v%d", key, version)
			for n := range len(answer) {
				require.ErrorIs(t, check(answer[:n], key, version), errAnswer, "%s v%d", key, version)
			}
			_, _, err := protocol.ReadResponse(bytes.NewReader(b.Bytes()), key, version)
			require.NoError(t, err, "%s v%d", key, version)
		}
	}
	require.Error(t, check(nil, protocol.Heartbeat, 0), "a request without a known answer")
}

// A record that names more than there is, and a batch that unpacks to more than fits, are refused:
// one of them in the topic of positions would otherwise end each process that reads it.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	short := func(c kafka.Compression, records []byte, count int) bool {
		var b batch
		b.begin(c)
		b.raw = append(b.raw, records...)
		b.end(1, 1, count)
		b.seal(0, unnumbered)
		require.NoError(t, b.failed)
		set := b.set[sizeBytes:]
		var s scan
		s.records(append(bytes.Clone(set), set[:len(set)-1]...)) // the second one is incomplete
		return s.short
	}
	good := (&record{key: []byte("k"), value: []byte("v"), headers: headers{encoded: []byte("\x02h\x02v"), count: 1}}).append(nil, 1, 2)
	start := []byte{0, 0, 0, 0} // length, attributes, and the two differences
	huge := binary.AppendVarint(nil, 1<<40)
	for _, c := range codecs {
		assert.False(t, short(c, good, 1))
		assert.False(t, short(c, append(bytes.Clone(good), good...), 2))
		for name, records := range map[string][]byte{
			"a key":     slices.Concat(start, huge),
			"a value":   slices.Concat(start, []byte{1}, huge),
			"headers":   slices.Concat(start, []byte{1, 1}, huge),
			"a name":    slices.Concat(start, []byte{1, 1, 2}, huge),
			"a number":  bytes.Repeat([]byte{0xff}, 20),
			"nothing":   {},
			"half":      good[:len(good)-1],
			"one short": good,
		} {
			count := 1
			if name == "one short" {
				count = 2
			}
			assert.True(t, short(c, records, count), "%s, compressed by %v", name, c)
		}
	}
	for _, c := range []kafka.Compression{kafka.Gzip, kafka.Zstd} {
		assert.True(t, short(c, make([]byte, maxAnswer+1), 1), "a bomb, compressed by %v", c)
	}
	var s scan
	s.records(make([]byte, batchHeader))
	assert.False(t, s.short, "it is of an older version")
}

// FuzzCheck checks that what passes the scan does no harm to kafka-go.
func FuzzCheck(f *testing.F) {
	keys := slices.Sorted(maps.Keys(answers))
	for i, key := range keys {
		var b bytes.Buffer
		require.NoError(f, protocol.WriteResponse(&b, key.MaxVersion(), 7, filled(answers[key]).Addr().Interface().(protocol.Message)))
		f.Add(uint8(i), uint8(key.MaxVersion()), b.Bytes()[4:])
	}
	f.Fuzz(func(t *testing.T, i, v uint8, answer []byte) {
		key := keys[int(i)%len(keys)]
		version := min(max(int16(v), key.MinVersion()), key.MaxVersion())
		if check(answer, key, version) != nil {
			return
		}
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...) //nolint:gosec // a small one
		// Records of the first versions make kafka-go panic, which conn.exchanged makes an error.
		if key == protocol.Fetch {
			defer func() { _ = recover() }()
			_, _, _ = protocol.ReadResponse(bytes.NewReader(frame), key, version)
			return
		}
		_, _, err := protocol.ReadResponse(bytes.NewReader(frame), key, version)
		require.NoError(t, err)
	})
}
