package secret

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const value = "hunter2-hunter2"

// holder has secrets where reflection reaches them in every way.
type holder struct {
	Plain   Text            `json:"plain" yaml:"plain"`
	Pointer *Text           `json:"pointer" yaml:"pointer"`
	List    []Text          `json:"list" yaml:"list"`
	Map     map[string]Text `json:"map" yaml:"map"`
	Any     any             `json:"any" yaml:"any"`
	hidden  Text
}

func newHolder() holder {
	t := New(value)
	return holder{Plain: t, Pointer: &t, List: []Text{t}, Map: map[string]Text{"a": t}, Any: t, hidden: t}
}

func TestNothingPrintsIt(t *testing.T) {
	t.Parallel()
	h := newHolder()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.3s", "%T", "%p", "%U", "%w"} {
		for _, v := range []any{h.Plain, h.Pointer, h.List, h.Map, h.Any} {
			got := fmt.Sprintf(verb, v)
			assert.NotContains(t, got, "hunter2", verb)
			assert.NotContains(t, got, fmt.Sprintf("%x", "hunter2"), verb)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%s"} {
		assert.Equal(t, Redacted, fmt.Sprintf(verb, h.Plain))
	}
	assert.NotContains(t, fmt.Sprint(errors.New("x"), h.Plain), "hunter2")
	assert.Equal(t, Redacted, h.Plain.GoString())
}

// TestUnexportedField: fmt calls no methods on a field that it may not access.
func TestUnexportedField(t *testing.T) {
	t.Parallel()
	h := newHolder()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		got := fmt.Sprintf(verb, h) + fmt.Sprintf(verb, &h) + fmt.Sprintf(verb, []any{&h})
		assert.NotContains(t, got, "hunter2", verb)
		assert.NotContains(t, got, fmt.Sprintf("%x", "hunter2"), verb)
	}
}

func TestComparable(t *testing.T) {
	t.Parallel()
	one, same := New(value), New(value)
	assert.True(t, one == same)
	assert.True(t, New("") == Text{})
	assert.False(t, one == New("other"))
	assert.Equal(t, one, same)
	assert.Equal(t, 1, map[Text]int{New(value): 1}[New(value)])
}

func TestNothingEncodesIt(t *testing.T) {
	t.Parallel()
	h := newHolder()
	for name, marshal := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
		got, err := marshal(h)
		require.NoError(t, err, name)
		assert.NotContains(t, string(got), "hunter2", name)
		assert.Equal(t, 5, bytes.Count(got, []byte(Redacted)), "%s: %s", name, got)
	}
	got, err := xml.Marshal(h.Plain)
	require.NoError(t, err)
	assert.NotContains(t, string(got), "hunter2")

	keys, err := json.Marshal(map[Text]int{h.Plain: 1})
	require.NoError(t, err)
	assert.JSONEq(t, `{"[redacted]":1}`, string(keys))
}

func TestNothingLogsIt(t *testing.T) {
	t.Parallel()
	h := newHolder()
	var out bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		log := slog.New(handler)
		log.Info("a", "plain", h.Plain, "pointer", h.Pointer, "list", h.List, "map", h.Map, "all", h, "any", h.Any)
		log.With("plain", h.Plain).WithGroup("g").Info(fmt.Sprint(h.Plain))
	}
	assert.NotContains(t, out.String(), "hunter2")
	assert.Contains(t, out.String(), Redacted)
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	var empty Text
	assert.True(t, empty.Empty())
	assert.False(t, New("x").Empty())
	assert.Empty(t, fmt.Sprint(empty))
	got, err := json.Marshal(empty)
	require.NoError(t, err)
	assert.Equal(t, `""`, string(got))
}

func TestDecodes(t *testing.T) {
	t.Parallel()
	var fromJSON, fromYAML struct {
		Key Text `json:"key" yaml:"key"`
	}
	require.NoError(t, json.Unmarshal([]byte(`{"key":"hunter2"}`), &fromJSON))
	require.NoError(t, yaml.Unmarshal([]byte("key: hunter2"), &fromYAML))
	assert.Equal(t, "hunter2", fromJSON.Key.Reveal())
	assert.Equal(t, "hunter2", fromYAML.Key.Reveal())
}

func TestEqual(t *testing.T) {
	t.Parallel()
	assert.True(t, New(value).Equal(value))
	assert.False(t, New(value).Equal(value+"x"))
	assert.False(t, New(value).Equal(""))
	assert.True(t, Text{}.Equal(""))
}

func TestLastFour(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "ter2", New(value).LastFour())
	assert.Empty(t, New("hunter2").LastFour())
	assert.Empty(t, New("a-long-secret-é12").LastFour(), "two bytes of é, or one character")
	assert.Equal(t, "1234", New("a-long-secrét1234").LastFour())
	assert.Empty(t, Text{}.LastFour())
}

// A secret that begins with another one leaves no part of itself, and everyday words stay.
func TestHide(t *testing.T) {
	t.Parallel()
	hide := Hide(4, "hunter", "hunter2-and-more", "", "the")
	assert.Equal(t, "the [redacted], the [redacted]", hide.Replace("the hunter2-and-more, the hunter"))
	assert.Equal(t, "a", Hide(0, "").Replace("a"), "the empty secret is nowhere")
}
