package config

import (
	"strings"

	"github.com/goccy/go-yaml/token"
)

// plainInLists corrects how the scanner reads {brokers: [kafka-1:9092]}. In a list within {},
// it ends a name at each ":", while in YAML a name ends only if a space follows. Other lists
// are read correctly.
func plainInLists(tokens token.Tokens) token.Tokens {
	var mended token.Tokens
	var open []token.Type // brackets
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open = append(open, t.Type)
		case token.SequenceEndType, token.MappingEndType:
			open = open[:max(0, len(open)-1)]
		}
		for inList(open) && i+2 < len(tokens) && onePlain(t, tokens[i+1], tokens[i+2]) {
			last := tokens[i+2]
			t = token.String(t.Value+":"+last.Value, t.Origin+":"+last.Origin, t.Position)
			i += 2
		}
		t.Prev, t.Next = nil, nil // Add sets them
		mended.Add(t)
	}
	return mended
}

func inList(open []token.Type) bool {
	return len(open) > 0 && open[len(open)-1] == token.SequenceStartType
}

// onePlain reports whether the three are a text without quotes, such as kafka-1:9092, with no
// space around its ":".
func onePlain(name, colon, value *token.Token) bool {
	return colon.Type == token.MappingValueType && isPlain(name) && isPlain(value) &&
		strings.HasSuffix(name.Origin, name.Value) && strings.HasPrefix(value.Origin, value.Value)
}

func isPlain(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.IntegerType, token.FloatType, token.BoolType, token.NullType,
		token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.InfinityType, token.NanType:
		return t.Value != ""
	}
	return false
}
