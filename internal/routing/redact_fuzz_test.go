package routing

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// tree is a JSON value in which all parts are spelt as they were written, except white space. A
// leaf has neither members nor elements.
type tree struct {
	kind     byte // '{', '[' or 0
	raw      string
	names    []string // as they are written
	texts    []string // their meanings
	children []tree
}

// read decodes with encoding/json, which shares no code with the package under test.
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

// after calls visit with the number of steps that a member's name may stand for: one, or as
// many as it has parts between dots. It is at most the number of steps.
func (r rule) after(name string, isMember bool, visit func(steps int)) {
	leads := func(step, name string) bool { return step == "*" || fold(step) == fold(name) }
	if leads(r.steps[0], name) {
		visit(1)
	}
	parts := strings.Split(fold(name), ".")
	if !isMember || len(parts) == 1 {
		return
	}
	for i, part := range parts {
		switch {
		case i == len(r.steps):
			visit(i)
			return
		case !leads(r.steps[i], part):
			return
		}
	}
	visit(len(parts))
}

// texts calls visit with each JSON value that some reader may find in a text.
func texts(raw string, visit func(raw []byte)) {
	var text string
	if raw[0] != '"' || json.Unmarshal([]byte(raw), &text) != nil {
		return
	}
	text = strings.TrimLeftFunc(text, func(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' })
	for fresh := true; text != ""; {
		if !strings.ContainsRune(`{["`, rune(text[0])) || text[0] != '{' && !fresh {
			text = text[1:]
			continue
		}
		d := json.NewDecoder(strings.NewReader(text))
		var value json.RawMessage
		if fresh = d.Decode(&value) == nil; fresh {
			visit(value)
			text = strings.TrimLeft(text[d.InputOffset():], " \t\r\n")
		} else {
			text = text[1:]
		}
	}
}

// reach calls visit with each value that any reader may find at a pointer: in texts, in any
// case of a name, the first or the last of equal ones.
func reach(t *testing.T, node tree, rules, all []rule, visit func(raw string)) {
	texts(node.raw, func(raw []byte) { reach(t, read(t, raw), append(slices.Clone(rules), all...), all, visit) })
	for i, child := range node.children {
		name := strconv.Itoa(i)
		if node.kind == '{' {
			name = node.texts[i]
		}
		var inner []rule
		for _, r := range rules {
			r.after(name, node.kind == '{', func(steps int) {
				if steps == len(r.steps) {
					visit(child.raw)
				} else {
					inner = append(inner, rule{r.steps[steps:], r.hash})
				}
			})
		}
		reach(t, child, inner, all, visit)
	}
}

// blank replaces each text that a careful redactor might replace with [hidden].
func blank(t *testing.T, node tree) tree {
	if node.kind == 0 && node.raw[0] == '"' {
		var text string
		require.NoError(t, json.Unmarshal([]byte(node.raw), &text))
		if strings.ContainsAny(text, `{["`) {
			node.raw = hidden
		}
	}
	for i, child := range node.children {
		node.children[i] = blank(t, child)
	}
	return node
}

// model defines redaction, one pointer and one place after the other.
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
			r.after(name, node.kind == '{', func(steps int) {
				switch {
				case steps < len(r.steps):
					inner = append(inner, rule{r.steps[steps:], r.hash})
				case r.hash:
					hash = true
				default:
					remove = true
				}
			})
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

// write writes the tree without white space.
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

// FuzzRedaction compares the redacted text with the model: each byte must be the same, except white
// space. So a removed value leaves no trace, and no reader can find it in the delivered text.
func FuzzRedaction(f *testing.F) {
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
		{`{"User":{"email":1},"message":{"user":{"email":2}},"x":"{\"user\":{\"email\":3}}"}`, "/user/email", "/user"},
		{`{"a.b":1,"a":{"b.c":2},"a.b.c":[{"x.y":3}]}`, "/a/b/c /*/0/x", "/a/b /a.b"},
		{`{"m":"said {\"a\":{\"b\":1}} and [{\"a.b\":2}]"}`, "/a/b", ""},
		{`{"user":"{\"email\":1}","y":"[1] {\"a\"","z":" \"\\\"\""}`, "/user/email /a/b", "/z"},
	} {
		f.Add([]byte(s[0]), s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, body []byte, remove, hash string) {
		if len(remove)+len(hash) > 60 { // "*" next to names multiplies nodes
			return
		}
		r, err := newRedaction(config.Redact{Remove: strings.Fields(remove), Hash: strings.Fields(hash), HashKey: secret.New(key)})
		if err != nil {
			return
		}
		before := slices.Clone(body)
		got, changed, err := r.apply(body)
		require.Equal(t, before, body, "the body must not be written to")
		all := rulesOf(remove, hash)
		if len(all) == 0 || bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > jsontext.MaxDepth {
			return
		}
		if trimmed := bytes.TrimSpace(body); !json.Valid(body) || !utf8.Valid(body) || trimmed[0] != '{' {
			require.Error(t, err)
			return
		}
		if bytes.Contains(bytes.ToLower(body), []byte(`\ud`)) {
			return // encoding/json replaces invalid text
		}
		require.NoError(t, err, "%s", body)
		if !changed {
			require.Equal(t, string(body), string(got))
		}
		var want, compact strings.Builder
		blank(t, model(read(t, body), all)).write(&want)
		require.True(t, json.Valid(got), "%s of %s", got, body)
		blank(t, read(t, got)).write(&compact)
		require.Equal(t, want.String(), compact.String(), "%s without %s and %s", body, remove, hash)
		reach(t, read(t, got), all, all, func(raw string) {
			require.True(t, raw == "null" || raw == hidden || strings.HasPrefix(raw, `"hmac-sha256:`), "%s of %s can be read as %s", raw, got, body)
		})
	})
}

// rulesOf returns the pointers from the body, and from its message.
func rulesOf(remove, hash string) (all []rule) {
	for i, texts := range []string{remove, hash} {
		for _, text := range strings.Fields(texts) {
			steps := strings.Split(text[1:], "/")
			for j := range steps {
				steps[j] = strings.ReplaceAll(strings.ReplaceAll(steps[j], "~1", "/"), "~0", "~")
			}
			all = append(all, rule{steps, i == 1}, rule{append([]string{messageMember}, steps...), i == 1})
		}
	}
	return all
}
