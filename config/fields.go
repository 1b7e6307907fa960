package config

import (
	"reflect"
	"slices"
	"strings"
)

// fieldsOf returns the fields of a section: the names in YAML and their indices.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "-" {
			fields[name] = i
		}
	}
	return fields
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// printable returns as much of a name in the file as a problem may show: up to the first
// character that names do not have, since a value may begin there ("password …" without its
// colon). A name without a value may itself be a value (as after "password:,"), so it is shown
// only if it looks like one of ours.
func printable(name string, alone bool) string {
	if alone && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "…"
	}
	end := strings.IndexFunc(name, func(r rune) bool { return !isWord(r) })
	if end < 0 {
		end = len(name)
	}
	if end = min(end, 64); end < len(name) || end == 0 {
		return name[:end] + "…"
	}
	return name
}

// suggest names the field that name was probably meant to be, or lists them all.
func suggest(name string, fields map[string]int) string {
	names := make([]string, 0, len(fields))
	for f := range fields {
		names = append(names, f)
	}
	slices.SortFunc(names, func(a, b string) int { return fields[a] - fields[b] })
	for _, f := range names {
		if near(name, f) {
			return "; did you mean " + f + "?"
		}
	}
	list := "; the fields here are "
	for i, f := range names {
		if i > 0 {
			list += ", "
		}
		list += f
	}
	return list
}

// near reports whether a and b are within an edit distance of 2.
func near(a, b string) bool {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return false
	}
	row := make([]int, len(b)+1) // the distances from a[:i] to each b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)] <= 2
}
