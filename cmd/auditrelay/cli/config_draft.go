package cli

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// draft is a configuration by the answers so far. Its fields are named as in the checks, such as
// sinks[0].kafka.topic.
type draft struct{ root yaml.Node }

// at is the place of a field, which is made if need be.
func (d *draft) at(field string) *yaml.Node {
	n := &d.root
	for _, name := range strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		i, err := strconv.Atoi(name)
		if n.Kind = yaml.SequenceNode; err != nil {
			n.Kind, i = yaml.MappingNode, member(n, name)
		}
		if i == len(n.Content) {
			n.Content = append(n.Content, &yaml.Node{})
		}
		n = n.Content[i]
	}
	return n
}

// member is the place of a member's value; its name is added if need be.
func member(of *yaml.Node, name string) int {
	for i := 0; i < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return i + 1
		}
	}
	of.Content = append(of.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name})
	return len(of.Content)
}

// set writes a text, a list of them, or true.
func (d *draft) set(field string, value any) error { return d.at(field).Encode(value) }

// drop leaves a section out.
func (d *draft) drop(section string) {
	dot := strings.LastIndex(section, ".")
	of := d.at(section[:max(dot, 0)])
	i := member(of, section[dot+1:])
	of.Content = slices.Delete(of.Content, i-1, min(i+1, len(of.Content)))
}

func (d *draft) text() []byte {
	var b bytes.Buffer
	b.WriteString("# yaml-language-server: $schema=" + schemaFile + "\n# 'auditrelay config init --non-interactive' explains every field that there is.\n")
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	_ = out.Encode(&d.root) // into memory
	return b.Bytes()
}
