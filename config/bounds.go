package config

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// The bounds of a document. The YAML parser's time grows with the square of some of these, and
// its stack with the depth. Aliases count as if they were written out.
const (
	maxLines   = 20_000
	maxTokens  = 50_000
	maxVisited = 100_000
	maxDepth   = 32
	maxKeys    = 1_000 // of one section that is written as a block
)

// bounds counts the tokens of a document, in order to refuse a hostile one before the parser
// sees it.
type bounds struct {
	tokens    int
	documents int
	brackets  int // open ones
	line      int // of the latest token
	onLine    int // tokens on that line that nest
	leading   bool
	blocks    []block // open ones, the innermost last
}

// block is a run of lines with the same indentation: the keys of a section.
type block struct{ column, keys int }

// take counts the next token. An error names what there is too much of.
func (b *bounds) take(t *token.Token) error {
	if b.tokens++; b.tokens > maxTokens {
		return fmt.Errorf("the file has more than %d YAML tokens", maxTokens)
	}
	if t.Position.Line != b.line {
		b.line, b.onLine, b.leading = t.Position.Line, 0, true
	}
	if b.brackets == 0 && b.leading && t.Type != token.CommentType {
		if b.begin(t); b.blocks[len(b.blocks)-1].keys > maxKeys {
			return fmt.Errorf("line %d: the section has more than %d fields", b.line, maxKeys)
		}
	}
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		b.brackets++
	case token.SequenceEndType, token.MappingEndType:
		b.brackets--
	case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
		b.onLine++
	case token.DocumentHeaderType:
		b.documents++
	}
	switch {
	case b.brackets > maxDepth || b.onLine > maxDepth:
		return fmt.Errorf("line %d is nested more than %d deep", b.line, maxDepth)
	case b.documents > 1:
		return errors.New("the file holds more than one YAML document; keep one")
	}
	return nil
}

// begin counts the first token of a line. Deeper blocks end there. A "-" begins a block of its
// own.
func (b *bounds) begin(t *token.Token) {
	column := t.Position.Column
	for len(b.blocks) > 0 && b.blocks[len(b.blocks)-1].column > column {
		b.blocks = b.blocks[:len(b.blocks)-1]
	}
	if len(b.blocks) == 0 || b.blocks[len(b.blocks)-1].column < column {
		b.blocks = append(b.blocks, block{column: column})
	}
	if b.leading = t.Type == token.SequenceEntryType; !b.leading {
		b.blocks[len(b.blocks)-1].keys++
	}
}
