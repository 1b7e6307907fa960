package meaning

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// Two sets give mail its direction, each over all templates of the project: the places
// that its links lead to, and the domains of its senders. An emptied domain leaves the
// choice to the service, which makes nothing stronger. All else is neutral.

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
	c.places(placesOf(a, linkPlaces), placesOf(b, linkPlaces), linkRules)
	c.places(placesOf(a, senderPlaces), placesOf(b, senderPlaces), senderRules)
	for _, id := range sortedUnion(a, b) {
		t := template{c, "template " + quote(id), "/template_id=" + cutPath(jsontext.Escape(id)), a[id], b[id]}
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

// place is where a link leads or mail comes from, with a template of it.
type place struct {
	template string
	read     bool // its address could be read
}

// placeRules are the rules and words for one set.
type placeRules struct{ added, removed, verb, witness string }

var (
	linkRules   = placeRules{"email.link_added", "email.link_removed", "links to", "a mail can lead to"}
	senderRules = placeRules{"email.sender_added", "email.sender_removed", "sends from", "a mail can come from"}
)

// places compares two sets of hosts or domains.
func (c *collector) places(a, b map[string]place, r placeRules) {
	for _, name := range sortedUnion(a, b) {
		old, was := a[name]
		now, is := b[name]
		shown := "`" + visible(name, maxPlace) + "`" // whole, since the end of a host tells whose it is
		switch {
		case !was && !now.read:
			c.add("email.link_unreadable", Statement{
				Sentence: fmt.Sprintf("template %s now has a link that may lead anywhere: %s", quote(now.template), shown),
				Path:     "/template_id=" + jsontext.Escape(now.template),
			})
		case !was:
			c.add(r.added, Statement{
				Sentence: fmt.Sprintf("template %s now %s %s", quote(now.template), r.verb, shown), Path: "/template_id=" + jsontext.Escape(now.template),
				Witness: r.witness + " " + shown + " now",
			})
		case !is && old.read:
			c.add(r.removed, Statement{
				Sentence: fmt.Sprintf("no template %s %s any more", r.verb, shown), Path: "/template_id=" + jsontext.Escape(old.template),
				Witness: r.witness + " " + shown + " no longer",
			})
		}
	}
}

// placesOf joins the places of all templates, each with the first template of it.
func placesOf(templates map[string]map[string]any, of func(map[string]any) map[string]bool) map[string]place {
	found := map[string]place{}
	for _, id := range sortedUnion(templates, nil) {
		for name, read := range of(templates[id]) {
			if _, known := found[name]; !known {
				found[name] = place{id, read}
			}
		}
	}
	return found
}

// linkPlaces are the places in all texts that a mail may show, those that no rule knows
// among them.
func linkPlaces(template map[string]any) map[string]bool {
	shown := maps.Clone(template)
	for _, name := range []string{"template_id", "name", "sender_information"} {
		delete(shown, name)
	}
	return linksIn("", shown)
}

func senderPlaces(template map[string]any) map[string]bool {
	if domain := senderDomain(template); domain != "" {
		return map[string]bool{domain: true}
	}
	return nil
}

// senderDomain is the domain of a template's sender; empty if the service chooses one.
func senderDomain(template map[string]any) string {
	v := memberOf(template, "sender_information", "from_domain")
	text, ok := v.(string)
	if !ok && v != nil {
		return string(jsontext.Encode(v))
	}
	text = strings.TrimSpace(text)
	if host, err := hostOf(text); err == nil {
		return host
	}
	return strings.ToLower(text)
}

// template compares one template.
type template struct {
	*collector
	name, path    string
	before, after map[string]any
}

func (t template) whole(happened, name string) {
	t.add("email.template_changed", Statement{Sentence: fmt.Sprintf("%s (%s) %s", t.name, quote(name), happened), Path: t.path})
}

func (t template) compare() {
	if was := senderDomain(t.before); was != "" && senderDomain(t.after) == "" {
		t.add("email.sender_emptied", Statement{
			Sentence: fmt.Sprintf("%s names no sender's domain any more, it was %s: the service chooses one", t.name, quote(was)),
			Path:     t.path + "/sender_information/from_domain",
		})
	}
	t.lockout()
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

// lockout tells of a mail without what people log in by: what the service filled into its links,
// or all that it filled in, such as a code.
func (t template) lockout() {
	had, links := filledIn(t.before)
	has, _ := filledIn(t.after)
	if len(links) == 0 {
		links = had
	}
	if len(links) == 0 || !disjoint(links, has) {
		return
	}
	lost := slices.Sorted(maps.Keys(links))
	t.add("email.lockout", Statement{
		Sentence: fmt.Sprintf("lockout: %s has lost %s, so nobody can go on from this mail", t.name, several(firstFew(lost), len(lost))),
		Path:     t.path + "/custom_html_customization",
		Witness:  "a mail by " + t.name + " has no " + quote(lost[0]) + " now",
	})
}

// filledIn are the placeholders in a template's texts, and those in its links.
func filledIn(template map[string]any) (all, links map[string]bool) {
	content := textOf(template, "custom_html_customization", "html_content")
	l := newLinks()
	l.markup(content)
	return placeholdersIn(content + textOf(template, "custom_html_customization", "plaintext_content")), l.filled
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
	if t.full(rule) { // then it counts only, and aligning many long texts would take long
		t.add(rule, Statement{})
		return
	}
	diff, removed, added := diffLines(was, is)
	t.add(rule, Statement{
		Sentence: fmt.Sprintf("%s: %s changed, %s removed and %s added", t.name, name, plural(removed, "line", "lines"), plural(added, "line", "lines")),
		Path:     t.path + "/" + strings.Join(names, "/"), Diff: diff, Old: raw(old), New: raw(now),
	})
}

var templateRules = []Rule{
	{"email.link_added", Weaker, High, "Mail links to a host that no template linked to before.", "Mail of the project can lead its readers there."},
	{"email.link_unreadable", Unknown, High, "Mail has a new link that cannot be read, that a placeholder decides, or that leads to no host.", "Mail programs may take its readers anywhere."},
	{"email.link_removed", Stronger, Info, "No template links to a host any more.", "Less is permitted."},
	{"email.sender_added", Weaker, High, "Mail comes from a domain that no template used before.", "Its readers trust mail of the project."},
	{"email.sender_removed", Stronger, Info, "No template sends from a domain any more.", "Less is permitted."},
	{"email.sender_emptied", Unknown, Medium, "A template names no sender's domain any more.", "The service chooses one, and the document does not say which."},
	{"email.lockout", Stronger, High, "A template has lost every value that the service filled into its links, or into its text.", "Whoever logs in by such a mail is locked out, perhaps by an attacker."},
	{"email.content_changed", Neutral, Low, "The text of a template changed, or who it says it is from.", "Links and sender's domains have statements of their own."},
	{"email.looks_changed", Neutral, Info, "A template has another name or look.", "Its text is the same."},
	{"email.template_changed", Neutral, Low, "A template was added or removed.", "Links and sender's domains have statements of their own."},
}
