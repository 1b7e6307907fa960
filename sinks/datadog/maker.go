package datadog

import (
	"strings"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/relay"
)

// maker knows how entries are made. It is immutable, and may be used concurrently.
type maker struct {
	texts             []text
	fields            fields
	truncate, restamp bool
}

// fields is where the body's fields go.
type fields uint8

const (
	fieldsMerged fields = iota
	fieldsNested
	fieldsNone
)

// newMaker reads the entries' settings from a complete cfg.
func newMaker(cfg config.Datadog) *maker {
	m := &maker{truncate: cfg.Oversize == "truncate", restamp: cfg.OutsideWindow == "restamp"}
	m.fields = map[string]fields{"merged": fieldsMerged, "nested": fieldsNested, "none": fieldsNone}[cfg.Attributes]
	m.add(text{attribute: "ddsource"}, cfg.Source)
	m.add(text{attribute: "service"}, cfg.Service)
	m.add(text{attribute: "hostname"}, cfg.Hostname)
	m.add(text{attribute: "ddtags", list: true}, cfg.Tags...)
	return m
}

// text is an attribute from one template, or from a list of them whose results
// are joined with commas.
type text struct {
	attribute string
	list      bool
	parts     []*relay.Template
	constant  []byte // the member, if it is the same for every event
}

// add adds an attribute, unless all its templates are empty.
func (m *maker) add(t text, templates ...string) {
	constant := true
	for _, s := range templates {
		part := relay.ParseTemplate(s)
		if s != "" {
			t.parts = append(t.parts, part)
			constant = constant && part.Constant()
		}
	}
	if len(t.parts) == 0 {
		return
	}
	if constant {
		t.constant = t.append(nil, t.join(nil, &relay.Event{}))
	}
	m.texts = append(m.texts, t)
}

// append appends the attribute with a comma before it, unless it is empty.
func (t *text) append(dst, joined []byte) []byte {
	if len(joined) == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), t.attribute...), `":`...)
	return jsontext.AppendString(dst, view(joined))
}

// appendMember appends the attribute of the event.
func (c *encoder) appendMember(dst []byte, t *text) []byte {
	if t.constant != nil {
		return append(dst, t.constant...)
	}
	c.joined = t.join(c.joined[:0], c.event)
	return t.append(dst, c.joined)
}

func (t *text) join(dst []byte, e *relay.Event) []byte {
	for _, p := range t.parts {
		if t.list {
			dst = appendTag(dst, p, e)
		} else {
			dst = p.Append(dst, e, nil)
		}
	}
	return dst
}

// appendTag appends a tag to a list, unless all of its values are empty, since "env:" would be
// of no use.
func appendTag(list []byte, p *relay.Template, e *relay.Event) []byte {
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

// appendTagValue keeps a value from becoming two tags. Datadog itself replaces the characters
// that a tag may not contain by "_".
func appendTagValue(dst []byte, value string) []byte {
	return append(dst, strings.ReplaceAll(value, ",", "_")...)
}

// appendEnvelope appends the CloudEvents attributes as a JSON object.
func appendEnvelope(dst []byte, e *relay.Event) []byte {
	separator := byte('{')
	add := func(name, value string) bool {
		dst = append(append(append(dst, separator, '"'), name...), '"', ':')
		dst = jsontext.AppendString(dst, value)
		separator = ','
		return true
	}
	e.Attributes(add)
	if e.ContentType != "" {
		add("datacontenttype", e.ContentType)
	}
	return append(dst, '}')
}
