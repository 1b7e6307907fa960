package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostHanging is the largest share of a room's sentences, in percent, that may hang
// on "that", "which" or "what". For comparison: alertmanager has 8 to 9 %,
// litestream 5 to 7 %, sunlight 15 %.
const mostHanging = 7

// TestCommentsAreInPlainWords counts the sentences in the comments of each room, its
// tests included. A blank line ends a sentence, too. Directives, code, headings and
// single words are no sentences. A room of a few sentences may have two that hang.
func TestCommentsAreInPlainWords(t *testing.T) {
	t.Parallel()
	all, hanging := commentSentences(t)
	for _, room := range slices.Sorted(maps.Keys(all)) {
		share := 100 * len(hanging[room]) / all[room]
		if share > mostHanging && len(hanging[room]) > 2 {
			assert.Failf(t, "comments are hard to read", "%s: %d of %d sentences (%d %%) hang on that, which or what; at most %d %% may.\n"+
				"Rewrite some with an active verb and one clause, for example:\n%s",
				room, len(hanging[room]), all[room], share, mostHanging, strings.Join(hanging[room][:min(10, len(hanging[room]))], "\n"))
		}
	}
}

func TestSentencesAreCounted(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string][]string{
		"One sentence.": {"One sentence."},
		"Version 1.2 ends nothing. (Two words!) Word.":    {"Version 1.2 ends nothing.", "(Two words!)"},
		"Over two\nlines\n\nA new paragraph":              {"Over two lines", "A new paragraph"},
		"# A heading\n\nCode follows:\n\n\tif that { }\n": {"Code follows:"},
	} {
		assert.Equal(t, want, sentencesOf(comment))
	}
	assert.True(t, hangs.MatchString("What hangs."))
	assert.False(t, hangs.MatchString("Whatever hangs."))
}

// commentSentences counts the sentences by room, and returns those that hang, with
// their places.
func commentSentences(t *testing.T) (all map[string]int, hanging map[string][]string) {
	t.Helper()
	all, hanging = map[string]int{}, map[string][]string{}
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		room, err := filepath.Rel(root, filepath.Dir(path))
		for _, comment := range file.Comments {
			for _, sentence := range sentencesOf(comment.Text()) {
				all[room]++
				if hangs.MatchString(sentence) {
					hanging[room] = append(hanging[room], files.Position(comment.Pos()).String()+": "+sentence)
				}
			}
		}
		return err
	}))
	return all, hanging
}

var (
	hangs       = regexp.MustCompile(`(?i)\b(that|which|what)\b`)
	sentenceEnd = regexp.MustCompile(`[.!?]["')]*(\s+|$)`)
)

// sentencesOf splits a comment's text into its sentences of two words or more.
func sentencesOf(comment string) (all []string) {
	for paragraph := range strings.SplitSeq(comment, "\n\n") {
		if strings.HasPrefix(paragraph, "#") || strings.HasPrefix(paragraph, "\t") {
			continue
		}
		words := strings.Join(strings.Fields(paragraph), " ")
		from := 0
		for _, end := range append(sentenceEnd.FindAllStringIndex(words, -1), []int{0, len(words)}) {
			if sentence := strings.TrimSpace(words[from:end[1]]); strings.Contains(sentence, " ") {
				all = append(all, sentence)
			}
			from = end[1]
		}
	}
	return all
}
