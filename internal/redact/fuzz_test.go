package redact

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/wire/jsonscan"
)

// tree is a JSON value with the spelling of all that it consists of, but for
// white space. A leaf has neither members nor elements.
type tree struct {
	kind     byte // '{', '[' or 0
	raw      string
	names    []string // as they are spelt
	texts    []string // what they mean
	children []tree
}

// read decodes with encoding/json, which shares no code with what is tested.
func read(t *testing.T, raw []byte) tree {
	raw = bytes.TrimSpace(raw)
	node := tree{raw: string(raw)}
	if raw[0] != '{' && raw[0] != '[' {
		return node
	}
	node.kind = raw[0]
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	require.NoError(t, err)
	for d.More() {
		if node.kind == '{' {
			from := d.InputOffset()
			name, err := d.Token()
			require.NoError(t, err)
			spelt := raw[from:d.InputOffset()]
			node.names = append(node.names, string(spelt[bytes.IndexByte(spelt, '"'):]))
			node.texts = append(node.texts, name.(string))
		}
		var child json.RawMessage
		require.NoError(t, d.Decode(&child))
		node.children = append(node.children, read(t, child))
	}
	return node
}

// rule is one pointer of the model.
type rule struct {
	steps []string
	hash  bool
}

// model says what redacting means, one pointer and one place after the other.
func model(node tree, rules []rule) tree {
	out := tree{kind: node.kind, raw: node.raw}
	for i, child := range node.children {
		name := strconv.Itoa(i)
		if node.kind == '{' {
			name = node.texts[i]
		}
		var inner []rule
		remove, hash := false, false
		for _, r := range rules {
			if r.steps[0] != name && r.steps[0] != "*" {
				continue
			}
			switch {
			case len(r.steps) > 1:
				inner = append(inner, rule{r.steps[1:], r.hash})
			case r.hash:
				hash = true
			default:
				remove = true
			}
		}
		switch {
		case remove && node.kind == '{':
			continue
		case remove:
			child = tree{raw: "null"}
		case hash:
			child = tree{raw: mac(meant(child))}
		default:
			child = model(child, inner)
		}
		if node.kind == '{' {
			out.names = append(out.names, node.names[i])
		}
		out.children = append(out.children, child)
	}
	return out
}

func meant(node tree) string {
	var text string
	if node.raw[0] == '"' && json.Unmarshal([]byte(node.raw), &text) == nil {
		return text
	}
	return node.raw
}

// write is the tree without white space.
func (t tree) write(b *strings.Builder) {
	if t.kind == 0 {
		b.WriteString(t.raw)
		return
	}
	b.WriteByte(t.kind)
	for i, child := range t.children {
		if i > 0 {
			b.WriteByte(',')
		}
		if t.kind == '{' {
			b.WriteString(t.names[i] + ":")
		}
		child.write(b)
	}
	b.WriteByte(t.kind + 2)
}

// FuzzApply holds what is redacted against the model: each byte that is not
// white space has to be the same. So what is taken out has left no trace.
func FuzzApply(f *testing.F) {
	for _, s := range [][3]string{
		{event, "/actor/email /src", "/actor/id /note"},
		{`{"a":{"b":1,"b":[2,{"c":"\n"}]},"\u0061":{"b":3}}`, "/a/b", "/a/*"},
		{`{"a":[{"b":1},{"b":2}],"a":null}`, "/a/0 /*/*/b", "/a/1/b /a"},
		{`[[],[0,-1.5e3,"x"],{"0":[1]}]`, "/1/2 /*/0", "/2/0/0 /0"},
		{" { \"a\" : 1 , \"b\" : 2 , \"a\" : 3 ,\n\"c\":4 } ", "/a /c", "/b"},
		{`{"~/":[true],"":{"":7}}`, "/~0~1/0 //", "/~0~1"},
		{`{"*":{"*":1},"x":{"*":2}}`, "/*/x", "/x/*"},
		{"{\"\xff\":1}", "/a", ""},
		{`{"0":{"0":{"a":1}}}`, "/*/0/a", "/0/*/b"},
	} {
		f.Add([]byte(s[0]), s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, body []byte, remove, hash string) {
		if len(remove)+len(hash) > 60 { // "*" beside names multiplies nodes
			return
		}
		r, err := New(strings.Fields(remove), strings.Fields(hash), key)
		if err != nil {
			return
		}
		before := slices.Clone(body)
		got, changed, err := r.Apply(body)
		require.Equal(t, before, body, "the body must not be written to")
		if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > jsonscan.MaxDepth {
			return
		}
		if !json.Valid(body) {
			require.Error(t, err)
			return
		}
		if !utf8.Valid(body) || bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) {
			return // encoding/json replaces what is no text
		}
		require.NoError(t, err)
		if !changed {
			require.Equal(t, string(body), string(got))
		}
		var all []rule
		for i, texts := range []string{remove, hash} {
			for _, text := range strings.Fields(texts) {
				steps := strings.Split(text[1:], "/")
				for j := range steps {
					steps[j] = strings.ReplaceAll(strings.ReplaceAll(steps[j], "~1", "/"), "~0", "~")
				}
				all = append(all, rule{steps, i == 1})
			}
		}
		var want, compact strings.Builder
		model(read(t, body), all).write(&want)
		require.True(t, json.Valid(got), "%s of %s", got, body)
		read(t, got).write(&compact)
		require.Equal(t, want.String(), compact.String(), "%s without %s and %s", body, remove, hash)
	})
}
