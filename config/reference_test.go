package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/reference"
)

// TestReferenceIs compares the reference of the configuration with the structs, their comments and
// Rules.
func TestReferenceIs(t *testing.T) {
	t.Parallel()
	r := &referenceOf{comments: commentsOf(t), seen: map[reflect.Type]string{}}
	r.section("", reflect.TypeFor[Config]())
	reference.Page(t, "configuration.md", `# Configuration

Made from the code by `+"`make reference`"+`; a test fails while it is stale. [config init](commands.md#auditrelay-config-init) writes a file, and
[config schema](commands.md#auditrelay-config-schema) prints the same for editors.

A value may hold `+"`${NAME}`"+`, an environment variable; a secret may also be `+"`file:PATH`"+`. A duration is written as `+"`500ms`, `30s`, `5m` or `72h`"+`; a size as a number
of bytes, or with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). *Live* fields are applied by [a reload](../../reload.md); the others take a restart.

`+strings.Join(r.index, " · ")+"\n"+r.text.String())
}

type referenceOf struct {
	comments map[string]string
	text     strings.Builder
	index    []string
	seen     map[reflect.Type]string // the paths of the sections that are written
}

// section writes the table of a section, and of those in it.
func (r *referenceOf) section(path string, t reflect.Type) {
	if r.seen[t] != "" {
		return
	}
	title := path
	if title == "" {
		title = "The whole file"
	}
	r.seen[t] = title
	r.index = append(r.index, link(title))
	fmt.Fprintf(&r.text, "\n## %s\n", title)
	r.text.WriteString(reference.Head("field", "value", "default", "reload", "meaning"))
	comment := ""
	below := map[string]reflect.Type{}
	var order []string
	for i := range t.NumField() {
		field := t.Field(i)
		name := field.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		if own := r.comments[t.Name()+"."+field.Name]; own != "" {
			comment = own
		}
		at := join(path, name)
		value, inner := r.value(at, field)
		rule := "restart"
		if RuleOf(at).Rule == Live {
			rule = "live"
		}
		usual := ""
		if d := field.Tag.Get("default"); d != "" {
			usual = "`" + d + "`"
		}
		r.text.WriteString(reference.Row("`"+name+"`", value, usual, rule, comment))
		if inner != nil {
			below[at], order = inner, append(order, at)
		}
	}
	for _, at := range order {
		r.section(at, below[at])
	}
}

func link(title string) string {
	anchor := strings.NewReplacer(" ", "-", ".", "", "[", "", "]", "").Replace(strings.ToLower(title))
	return "[" + title + "](#" + anchor + ")"
}

// value says what a field holds; inner is the section that it is, or that its elements are.
func (r *referenceOf) value(at string, field reflect.StructField) (text string, inner reflect.Type) {
	t, many := field.Type, ""
	for {
		switch {
		case t.Kind() == reflect.Pointer:
			t = t.Elem()
			continue
		case t.Kind() == reflect.Slice:
			many, t = "list of ", t.Elem()
			continue
		case t.Kind() == reflect.Map:
			many, t = "names, each with ", t.Elem()
			continue
		}
		break
	}
	switch {
	case t == reflect.TypeFor[secret.Text]():
		text = "secret"
	case t == reflect.TypeFor[time.Duration]():
		text = "duration"
	case t == reflect.TypeFor[Size]():
		text = "size"
	case t.Kind() == reflect.Struct:
		where := at
		if done := r.seen[t]; done != "" {
			where = done
		}
		return many + link(where), t
	default:
		text = map[reflect.Kind]string{reflect.Bool: "true or false", reflect.Int: "whole number", reflect.Float64: "number", reflect.String: "text"}[t.Kind()]
	}
	return many + text + limits(field.Tag.Get("check")), nil
}

func limits(check string) string {
	low, high, isRange := strings.Cut(check, "..")
	switch {
	case isRange:
		return ", " + low + " to " + high
	case strings.Contains(check, "|"):
		return ": " + strings.ReplaceAll(check, "|", ", ")
	case check == "required":
		return ", required"
	}
	return ""
}
