package meaning

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// Two sets give mail its direction, each over all templates of the project: the hosts in
// its links, and the domains of its senders. All else is neutral.

var (
	senderFields = []string{"from_local_part", "from_domain", "from_name", "reply_to_local_part", "reply_to_name"}
	looksFields  = []string{"button_border_radius", "button_color", "button_text_color", "font_family", "text_alignment"}
	customFields = []string{"template_type", "html_content", "plaintext_content", "subject"}
)

var templatesShape = listBy("template_id", object(map[string]*shape{
	"template_id": text, "name": anything,
	"sender_information":        texts(senderFields...),
	"prebuilt_customization":    texts(looksFields...),
	"custom_html_customization": texts(customFields...),
}))

func explainTemplates(c *collector, before, after any) {
	a, b := byKey(before, "template_id"), byKey(after, "template_id")
	c.places(linksOf(a), linksOf(b), linkRules)
	c.places(sendersOf(a), sendersOf(b), senderRules)
	for _, id := range sortedUnion(a, b) {
		t := template{c, "template " + quote(id), "/template_id=" + cutPath(jsondiff.Escape(id)), a[id], b[id]}
		switch {
		case t.before == nil:
			t.whole("added", textOf(t.after, "name"))
		case t.after == nil:
			t.whole("removed", textOf(t.before, "name"))
		default:
			t.compare()
		}
	}
}

// placeRules are the rules and words for one set.
type placeRules struct{ added, removed, verb, witness string }

var (
	linkRules   = placeRules{"email.link_added", "email.link_removed", "links to", "a mail can lead to"}
	senderRules = placeRules{"email.sender_added", "email.sender_removed", "sends from", "a mail can come from"}
)

// places compares two sets of hosts or domains, each with a template of it.
func (c *collector) places(a, b map[string]string, r placeRules) {
	for _, place := range sortedUnion(a, b) {
		old, was := a[place]
		now, is := b[place]
		switch {
		case !was:
			c.add(r.added, func() Statement {
				return Statement{
					Sentence: fmt.Sprintf("template %s now %s %s", quote(now), r.verb, quote(place)), Path: "/template_id=" + jsondiff.Escape(now),
					Witness: r.witness + " " + quote(place) + " now",
				}
			})
		case !is:
			c.add(r.removed, func() Statement {
				return Statement{
					Sentence: fmt.Sprintf("no template %s %s any more", r.verb, quote(place)), Path: "/template_id=" + jsondiff.Escape(old),
					Witness: r.witness + " " + quote(place) + " no longer",
				}
			})
		}
	}
}

// linksOf returns the hosts in templates' links, each with the first such template.
func linksOf(templates map[string]map[string]any) map[string]string {
	found := map[string]string{}
	for _, id := range sortedUnion(templates, nil) {
		for _, field := range customFields[1:] {
			for host := range linkedHosts(textOf(templates[id], "custom_html_customization", field)) {
				if _, known := found[host]; !known {
					found[host] = id
				}
			}
		}
	}
	return found
}

func sendersOf(templates map[string]map[string]any) map[string]string {
	found := map[string]string{}
	for _, id := range sortedUnion(templates, nil) {
		domain := strings.ToLower(textOf(templates[id], "sender_information", "from_domain"))
		if _, known := found[domain]; !known && domain != "" {
			found[domain] = id
		}
	}
	return found
}

// template compares one template.
type template struct {
	*collector
	name, path    string
	before, after map[string]any
}

func (t template) whole(happened, name string) {
	t.add("email.template_changed", func() Statement {
		return Statement{Sentence: fmt.Sprintf("%s (%s) %s", t.name, quote(name), happened), Path: t.path}
	})
}

func (t template) compare() {
	t.member("email.looks_changed", "name")
	for _, name := range senderFields {
		t.member("email.content_changed", "sender_information", name)
	}
	for _, name := range looksFields {
		t.member("email.looks_changed", "prebuilt_customization", name)
	}
	for _, name := range customFields {
		t.member("email.content_changed", "custom_html_customization", name)
	}
}

// member compares one value. Long texts are compared by line.
func (t template) member(rule string, names ...string) {
	old, now := memberOf(t.before, names...), memberOf(t.after, names...)
	was, textBefore := old.(string)
	is, textAfter := now.(string)
	name := names[len(names)-1]
	if !textBefore || !textAfter || (name != "html_content" && name != "plaintext_content") {
		t.field(rule, t.name+": "+name, t.path+"/"+strings.Join(names, "/"), old, now)
		return
	}
	if reflect.DeepEqual(old, now) {
		return
	}
	t.add(rule, func() Statement {
		diff, removed, added := diffLines(was, is)
		return Statement{
			Sentence: fmt.Sprintf("%s: %s changed, %s removed and %s added", t.name, name, plural(removed, "line", "lines"), plural(added, "line", "lines")),
			Path:     t.path + "/" + strings.Join(names, "/"), Diff: diff, Old: raw(old), New: raw(now),
		}
	})
}
