package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxLines bounds a document, and maxVisited its values: aliases count as if they were
	// written out.
	maxLines   = 20_000
	maxVisited = 100_000
)

// document decodes a whole document; nil if it cannot even be parsed.
func (d *decoder) document(data []byte) *Config {
	root, err := parseYAML(data)
	if err != nil {
		line, reason := withoutLine(err)
		d.fail(line, "", "", reason)
		return nil
	}
	cfg := new(Config)
	d.value(root, "", reflect.ValueOf(cfg).Elem())
	return cfg
}

func parseYAML(data []byte) (*yaml.Node, error) {
	switch {
	case len(data) > maxFile:
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFile)
	case !utf8.Valid(data):
		return nil, errors.New("the file is not valid UTF-8")
	case bytes.Count(data, []byte{'\n'})+bytes.Count(data, []byte{'\r'}) > maxLines:
		return nil, fmt.Errorf("the file has more than %d lines", maxLines)
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && isNull(document.Content[0]) {
		return nil, errors.New("the file is empty; `auditrelay config init` prints an example")
	}
	if err != nil {
		return nil, err
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, errors.New("the file holds more than one YAML document; keep one")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return document.Content[0], nil
}

// atLine is how the parser's errors begin.
var atLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// countsFromZero are the parser's errors about its tokens: their line is the one before.
var countsFromZero = regexp.MustCompile(`^did not find expected (?:key|node content|'-'|',')`)

// unclear are the parser's errors that need another word, by their beginnings. The name of an
// alias is not shown, as a secret may begin with a "*".
var unclear = map[string]string{
	"unknown anchor": "an alias (*NAME) stands for no anchor (&NAME) before it",
	"found character that cannot start any token": "a value that starts with @, ` or % must be quoted, and a tab cannot indent; use spaces",
	"did not find expected ',' or":                "a list or fields within brackets do not end here; put a value that holds a ? or a bracket in quotes",
}

// withoutLine returns the line of a parser's error, or 0, and what is wrong there.
func withoutLine(err error) (line int, reason string) {
	reason = err.Error()
	m := atLine.FindStringSubmatch(reason)
	if m == nil {
		return 0, reason
	}
	line, _ = strconv.Atoi(m[1]) // 0 without a line
	if reason = strings.TrimPrefix(reason, m[0]); countsFromZero.MatchString(reason) {
		line++
	}
	for begins, clear := range unclear {
		if strings.HasPrefix(reason, begins) {
			reason = clear
		}
	}
	return line, "not valid YAML: " + reason
}

// resolve follows an alias to its node.
func (d *decoder) resolve(node *yaml.Node, path string) (*yaml.Node, bool) {
	if d.visited++; d.visited > maxVisited {
		if d.visited == maxVisited+1 {
			d.fail(node.Line, path, "", "the file's aliases expand to too much; write it out shorter")
		}
		return nil, false
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Style&yaml.TaggedStyle != 0 {
		d.fail(node.Line, path, "", "YAML tags (!…) are not supported; remove it, or quote the value")
		return nil, false
	}
	return node, true
}

// entry is a name in a section, with its value. A name that is no text of its own is empty.
type entry struct {
	name       string
	key, value *yaml.Node
}

func entriesOf(section *yaml.Node) []entry {
	entries := make([]entry, len(section.Content)/2)
	for i := range entries {
		e := entry{key: section.Content[2*i], value: section.Content[2*i+1]}
		if e.key.Kind == yaml.ScalarNode {
			e.name = e.key.Value
		}
		entries[i] = e
	}
	return entries
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" }

// kindOf names a node for a person, without its content.
func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}
