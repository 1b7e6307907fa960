package kafka

import (
	"bytes"
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
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
		if key == protocol.Fetch || check(answer, key, version) != nil {
			return
		}
		frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...) //nolint:gosec // a small one
		_, _, err := protocol.ReadResponse(bytes.NewReader(frame), key, version)
		require.NoError(t, err)
	})
}
