package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// document decodes a whole document; nil if it cannot even be parsed.
func (d *decoder) document(data []byte) *Config {
	root, err := parseYAML(data)
	if err != nil {
		line := 0
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			line = syntax.GetToken().Position.Line
			err = errors.New("not valid YAML: " + withoutSource(syntax.GetMessage()))
		}
		d.fail(line, "", "", err.Error())
		return nil
	}
	cfg := new(Config)
	d.value(root, "", reflect.ValueOf(cfg).Elem())
	return cfg
}

func parseYAML(data []byte) (ast.Node, error) {
	switch {
	case len(data) > maxFile:
		return nil, fmt.Errorf("the file is larger than %d bytes", maxFile)
	case !utf8.Valid(data):
		return nil, errors.New("the file is not valid UTF-8")
	case bytes.Count(data, []byte{'\n'})+bytes.Count(data, []byte{'\r'}) > maxLines:
		return nil, fmt.Errorf("the file has more than %d lines", maxLines)
	}
	tokens, err := tokenize(string(data))
	if err != nil {
		return nil, err
	}
	// Repeated keys are allowed here, since the decoder reports them together with the other
	// errors.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, errors.New("the file is empty; `auditrelay config init` prints an example")
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("the file holds more than one YAML document; keep one")
	}
	return file.Docs[0].Body, nil
}

// tokenize splits source, and refuses documents too costly for the parser.
func tokenize(source string) (token.Tokens, error) {
	var s scanner.Scanner
	s.Init(source)
	var tokens token.Tokens
	var b bounds
	for {
		next, err := s.Scan()
		for _, t := range next {
			if err := b.take(t); err != nil {
				return nil, err
			}
		}
		tokens.Add(next...)
		if err != nil {
			return plainInLists(tokens), nil //nolint:nilerr // the parser says where an invalid token is
		}
	}
}

// withoutSource cuts quotations of the file out of a parser's message: they may be
// pieces of a secret.
func withoutSource(message string) string {
	for _, m := range []string{
		"invalid header option", "found unknown escape character", "found invalid tag character",
		"cannot assign default value", "unknown YAML version", "mapping key",
	} {
		if strings.HasPrefix(message, m) {
			return m
		}
	}
	switch {
	case strings.HasSuffix(message, "is a reserved character"):
		return "a value that starts with @ or ` must be quoted"
	case strings.HasSuffix(message, "cannot start any token"):
		return "a tab cannot indent; use spaces"
	}
	return message
}

// resolve follows anchors and aliases to their node.
func (d *decoder) resolve(node ast.Node, path string) (ast.Node, bool) {
	line := node.GetToken().Position.Line
	if d.visited++; d.visited > maxVisited {
		if d.visited == maxVisited+1 {
			d.fail(line, path, "", "the file's aliases expand to too much; write it out shorter")
		}
		return nil, false
	}
	switch n := node.(type) {
	case *ast.AnchorNode:
		target, ok := d.resolve(n.Value, path)
		if ok {
			d.anchors[n.Name.GetToken().Value] = target
		}
		return target, ok
	case *ast.AliasNode:
		target, ok := d.anchors[n.Value.GetToken().Value]
		if !ok {
			d.fail(line, path, "", "the alias (*NAME) stands for no anchor (&NAME) before it")
		}
		return target, ok
	case *ast.TagNode:
		d.fail(line, path, "", "YAML tags (!…) are not supported; remove it, or quote the value")
		return nil, false
	case *ast.MappingValueNode:
		return &ast.MappingNode{BaseNode: n.BaseNode, Start: n.Start, Values: []*ast.MappingValueNode{n}}, true
	}
	return node, true
}

// scalarText returns a scalar as it is written, without its quotes.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// kindOf names a node for a person, without its content.
func kindOf(node ast.Node) string {
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "fields"
	case ast.SequenceType:
		return "a list"
	default:
		return "a single value"
	}
}
