package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each durable step that a replaced relay may try names a test, and each test that is named exists.
func TestEachStepOfAZombieNamesItsTest(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "deploy", "cluster.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "| durable step | what the zombie gets | the test that tries it |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	exist := testsUnder(t, root)
	rows, name := 0, regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	for _, row := range strings.Split(table, "\n")[1:] { // after the line
		cells := strings.Split(row, "|")
		named := name.FindAllStringSubmatch(cells[len(cells)-2], -1)
		assert.NotEmpty(t, named, row)
		for _, n := range named {
			assert.True(t, exist[n[1]], "%s: there is no %s", cells[1], n[1])
		}
		rows++
	}
	assert.Greater(t, rows, 15)
}

// testsUnder are the names of all tests.
func testsUnder(t *testing.T, root string) map[string]bool {
	t.Helper()
	all, name := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{"cmd", "config", "internal", "relay", "sinks"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, n := range name.FindAllStringSubmatch(string(text), -1) {
				all[n[1]] = true
			}
			return err
		}))
	}
	return all
}
