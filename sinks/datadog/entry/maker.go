package entry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/wire/jsonscan"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks/template"
)

// Maker makes entries. It is immutable, and may be used concurrently.
type Maker struct {
	source, service, hostname, tags text
	fields                          fields
	truncate, restamp               bool
}

// fields is where the body's fields go.
type fields uint8

const (
	fieldsMerged fields = iota
	fieldsNested
	fieldsNone
)

// NewMaker reads what cfg says of entries. Errors name the field of cfg.
func NewMaker(cfg config.Datadog) (*Maker, error) {
	m := &Maker{
		tags:     text{list: true},
		truncate: cfg.Oversize == "truncate",
		restamp:  cfg.OutsideWindow == "restamp",
	}
	for _, f := range []struct {
		name, text string
		into       *text
	}{
		{"source", cmp.Or(cfg.Source, "auditrelay"), &m.source},
		{"service", cmp.Or(cfg.Service, "auditrelay"), &m.service},
		{"hostname", cfg.Hostname, &m.hostname},
	} {
		if err := f.into.add(f.text); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if cfg.Tags == nil {
		cfg.Tags = []string{"env:{environment}", "project:{project}"}
	}
	for _, tag := range cfg.Tags {
		if strings.Contains(tag, ",") {
			return nil, fmt.Errorf("tags: %q holds a comma; give each tag an item of its own", tag)
		}
		if err := m.tags.add(tag); err != nil {
			return nil, fmt.Errorf("tags: %w", err)
		}
	}
	return m, m.choose(cfg)
}

// choose checks what is one of several names.
func (m *Maker) choose(cfg config.Datadog) error {
	switch cfg.Attributes {
	case "", "merged":
	case "nested":
		m.fields = fieldsNested
	case "none":
		m.fields = fieldsNone
	default:
		return fmt.Errorf("attributes: %q is not one of merged, nested, none", cfg.Attributes)
	}
	if !m.truncate && cmp.Or(cfg.Oversize, "reject") != "reject" {
		return fmt.Errorf("oversize: %q is not one of reject, truncate", cfg.Oversize)
	}
	if !m.restamp && cmp.Or(cfg.OutsideWindow, "reject") != "reject" {
		return fmt.Errorf("outside_window: %q is not one of reject, restamp", cfg.OutsideWindow)
	}
	return nil
}

// text is one template, or a list of those whose results are joined with commas.
type text struct {
	list     bool
	parts    []*template.Template
	constant *string // the text, where it is the same for every event
}

func (t *text) add(s string) error {
	if s == "" {
		return nil
	}
	part, err := template.Parse(s)
	if err != nil {
		return err
	}
	t.parts = append(t.parts, part)
	t.constant = nil
	if !slices.ContainsFunc(t.parts, func(p *template.Template) bool { return !p.Constant() }) {
		t.constant = t.join(&relay.Event{})
	}
	return nil
}

// text is the text for e, or nil where there is none.
func (t *text) text(e *relay.Event) *string {
	if t.constant != nil {
		return t.constant
	}
	return t.join(e)
}

func (t *text) join(e *relay.Event) *string {
	var room [128]byte
	joined := room[:0]
	for _, p := range t.parts {
		if t.list {
			joined = appendTag(joined, p, e)
		} else {
			joined = p.Append(joined, e, nil)
		}
	}
	if len(joined) == 0 {
		return nil
	}
	s := strings.ToValidUTF8(string(joined), "\uFFFD")
	return &s
}

// appendTag appends a tag to a list, unless all of its values are empty: "env:"
// would be of no use.
func appendTag(list []byte, p *template.Template, e *relay.Event) []byte {
	start := len(list)
	if start > 0 {
		list = append(list, ',')
	}
	tag := len(list)
	list = p.Append(list, e, appendTagValue)
	if !p.Constant() && string(list[tag:]) == p.Map("") {
		return list[:start]
	}
	return list
}

// appendTagValue keeps a value from becoming two tags. Datadog itself puts "_"
// for what a tag may not hold.
func appendTagValue(dst []byte, value string) []byte {
	for i := range len(value) {
		if c := value[i]; c == ',' {
			dst = append(dst, '_')
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}

// appendEnvelope appends the CloudEvents attributes as a JSON object.
func appendEnvelope(dst []byte, e *relay.Event) []byte {
	separator := byte('{')
	add := func(name, value string) bool {
		dst = append(append(append(dst, separator, '"'), name...), '"', ':')
		dst = appendText(dst, value)
		separator = ','
		return true
	}
	e.Attributes(add)
	if e.ContentType != "" {
		add("datacontenttype", e.ContentType)
	}
	return append(dst, '}')
}

// appendText appends a JSON string. What is no UTF-8 becomes U+FFFD.
func appendText(dst []byte, value string) []byte {
	grown, err := jsonscan.AppendString(dst, value)
	if errors.Is(err, jsonscan.ErrUTF8) {
		grown, _ = jsonscan.AppendString(dst, strings.ToValidUTF8(value, "\uFFFD"))
	}
	return grown
}
