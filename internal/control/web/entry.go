package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
)

// The subjects of entries whose states have a form of their own.
const (
	rbacSubject = "rbac_policy"
	mailSubject = "email_templates"
)

// entryPage is one entry, whole.
type entryPage struct {
	timeline.Entry
	Matrix    *meaning.Matrix // nil: it is no change of an RBAC policy
	Mails     []mail
	MoreMails int         // that are not shown
	Texts     []stateText // before, after and detail
	MayReview bool
	MayProve  bool
}

// diffLine is a line of a text's diff; Kind is "added", "removed", "place" or empty.
type diffLine struct{ Kind, Text string }

// stateText is a state as text.
type stateText struct {
	Name, Text string
	// Whole is the address of all of it, where Text is a part. Size is in bytes.
	Whole string
	Size  int
}

func entryOf(a *asked) (any, error) {
	e, err := wholeEntry(a)
	if err != nil {
		return nil, err
	}
	auditor := a.role >= access.Auditor && !e.Missing
	p := &entryPage{Entry: e, MayProve: auditor, MayReview: auditor && e.Type != timeline.TypeAnnotated}
	if e.Setting == rbacSubject && len(e.Before) > 0 {
		if m, err := meaning.PermissionMatrix(e.Before, e.After); err == nil {
			p.Matrix = &m
		}
	}
	if e.Setting == mailSubject {
		p.Mails, p.MoreMails = mailsOf(e)
	}
	for _, part := range []string{"before", "after", "detail"} {
		if raw := partOf(e, part); len(raw) > 0 {
			p.Texts = append(p.Texts, textOf(e.Index, part, raw))
		}
	}
	return p, nil
}

// wholeEntry reads the entry that the path names.
func wholeEntry(a *asked) (e timeline.Entry, err error) {
	index, _, err := indexIn(url.Values{"index": {a.request.PathValue("index")}}, "index")
	if err != nil {
		return e, err
	}
	found, err := entries(a, timeline.Filter{Index: &index})
	if err == nil && len(found) == 0 {
		err = &problem{http.StatusNotFound, fmt.Sprintf("The trail has no entry %d.", index), "The newest ones are on the page Changes."}
	}
	if err != nil {
		return e, err
	}
	return found[0], nil
}

func partOf(e timeline.Entry, part string) json.RawMessage {
	return map[string]json.RawMessage{"before": e.Before, "after": e.After, "detail": e.Detail}[part]
}

// shownBytes of a state are on the page.
const shownBytes = 20_000

func textOf(index int64, part string, raw json.RawMessage) stateText {
	text := prettyJSON(raw)
	s := stateText{Name: part, Text: text, Size: len(raw)}
	if len(text) > shownBytes {
		s.Text, s.Whole = cut(text, shownBytes), fmt.Sprintf("%s/%d/text?part=%s", changesPath, index, part)
	}
	return s
}

// deepest is how deeply JSON may be nested to be indented. The indents of a deeper one would take far
// more room than the JSON itself: they grow with the square of its depth.
const deepest = 100

// prettyJSON is JSON for people. Characters that could hide or reorder text stand as escapes.
func prettyJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if depth(raw) > deepest || json.Indent(&b, raw, "", "  ") != nil {
		return readable(raw)
	}
	return readable(b.Bytes())
}

// depth is how deeply JSON is nested.
func depth(raw []byte) (most int) {
	now, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			most = max(most, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// unescaped shows the characters of markup. An escaped backslash stays, so that its second half is not
// taken for the beginning of another escape.
var unescaped = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// readable shows the characters of markup, which JSON on the wire has as escapes, and escapes those
// that steer.
func readable(raw []byte) string { return unescaped.Replace(plaintext.JSON(raw)) }

func diffLines(diff string) (lines []diffLine) {
	kinds := map[byte]string{'+': "added", '-': "removed", '@': "place"}
	for line := range strings.Lines(diff) {
		line = plaintext.Replace(strings.TrimSuffix(line, "\n"), '·')
		if line != "" {
			lines = append(lines, diffLine{kinds[line[0]], line})
		}
	}
	return lines
}

// entryText is a whole state as plain text.
func entryText(w http.ResponseWriter, a *asked) error {
	e, err := wholeEntry(a)
	if err != nil {
		return err
	}
	raw := partOf(e, a.value("part"))
	if len(raw) == 0 {
		return &problem{http.StatusNotFound, "The entry has no such part.", "Go back to the entry."}
	}
	write(w, http.StatusOK, "text/plain; charset=utf-8", []byte(prettyJSON(raw)))
	return nil
}

// annotate reads what a reviewer has entered.
func annotate(a *asked) (prepared, error) {
	e, err := wholeEntry(a)
	if err != nil {
		return prepared{}, err
	}
	review := timeline.Annotation{Index: e.Index, Leaf: e.Leaf, Reviewer: cmp.Or(a.value("reviewer"), a.person.User), Ticket: a.value("ticket"), Note: a.value("note")}
	return prepared{
		plan: func() (plan, error) {
			p := plan{Button: "Enter it", Head: []string{"Entry", "Reviewer", "Ticket", "Note"}, Says: []string{
				fmt.Sprintf("An entry of its own would mark entry %d as reviewed: “%s”", e.Index, cut(e.Summary, 300)),
				"The entry itself stays as it is. Nobody can take the mark back.",
			}, Rows: [][]string{{strconv.FormatInt(e.Index, 10), review.Reviewer, review.Ticket, cut(review.Note, 300)}}}
			if e.Reviewed {
				p.Says = append(p.Says, "It was reviewed already; this would be one more review.")
			}
			return p, nil
		},
		do: func() (done, error) {
			made, err := a.client.Annotate(a.ctx, review)
			return done{fmt.Sprintf("Entry %d is reviewed; entry %d says so.", e.Index, made.Entry), fmt.Sprintf("%s/%d", changesPath, e.Index)}, err
		},
	}, badRequest(review.Check())
}

// mail is an email template that an entry changed, with the addresses of its looks; empty where
// there is none on that side.
type mail struct {
	ID            string
	Subjects      [2]string
	Before, After string
}

// mailTemplate is one as the API shows it, as far as its look goes.
type mailTemplate struct {
	ID     string `json:"template_id"`
	Custom struct {
		Subject string `json:"subject"`
		HTML    string `json:"html_content"`
	} `json:"custom_html_customization"`
}

// mostMails bounds the templates shown of one entry.
const mostMails = 20

// mailsOf are the templates with HTML that differ, as many as a page shows, and how many more there are.
func mailsOf(e timeline.Entry) (list []mail, more int) {
	before, after := templatesIn(e.Before), templatesIn(e.After)
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, id := range slices.Sorted(maps.Keys(both)) {
		if before[id] == after[id] {
			continue
		}
		look := func(side string, t mailTemplate) string {
			if t.Custom.HTML == "" {
				return ""
			}
			return fmt.Sprintf("%s/%d/mail?%s", changesPath, e.Index, url.Values{"side": {side}, "template": {id}}.Encode())
		}
		m := mail{ID: id, Subjects: [2]string{before[id].Custom.Subject, after[id].Custom.Subject}, Before: look("before", before[id]), After: look("after", after[id])}
		if m.Before+m.After != "" {
			list = append(list, m)
		}
	}
	shown := min(len(list), mostMails)
	return list[:shown], len(list) - shown
}

func templatesIn(raw json.RawMessage) map[string]mailTemplate {
	var list []mailTemplate
	_ = json.Unmarshal(raw, &list) // of a state of another form, what could be read
	byID := map[string]mailTemplate{}
	for _, t := range list {
		byID[timeline.ShortName(t.ID)] = t
	}
	return byID
}

// mailPolicy shows a mail as it looks, without scripts, forms, and any request. A frame with srcdoc
// would have the page's own policy too, which takes all styles from a mail.
const mailPolicy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// entryMail is the look of a template, for a sandboxed frame.
func entryMail(w http.ResponseWriter, a *asked) error {
	e, err := wholeEntry(a)
	if err != nil {
		return err
	}
	t, found := templatesIn(partOf(e, a.value("side")))[a.value("template")]
	if !found {
		return &problem{http.StatusNotFound, "The entry has no such template.", "Go back to the entry."}
	}
	form := "text/html; charset=utf-8"
	text, err := inert(t.Custom.HTML)
	if err != nil { // the page of an error would not be shown in a frame
		form, text = "text/plain; charset=utf-8", []byte("This template cannot be shown as a recipient sees it: "+err.Error()+". The differences have its text.")
	}
	w.Header().Set("Content-Security-Policy", mailPolicy)
	w.Header().Set("X-DNS-Prefetch-Control", "off")
	write(w, http.StatusOK, form, text)
	return nil
}

// calling are elements that a policy does not keep from looking up a host, or that show nothing in
// a frame without scripts.
var calling = []string{"link", "meta", "base", "script", "iframe", "frame", "frameset", "object", "embed"}

// inert takes the calling elements from a mail, and what a click would call.
func inert(text string) ([]byte, error) {
	root, err := html.ParseWithOptions(strings.NewReader(text), html.ParseOptionEnableScripting(false))
	if err != nil {
		return nil, fmt.Errorf("read the template: %w", err)
	}
	for n := range root.Descendants() {
		n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool {
			return a.Key == "href" || a.Key == "ping" || a.Key == "action" || a.Key == "formaction"
		})
	}
	for _, n := range slices.Collect(root.Descendants()) {
		if n.Type == html.ElementNode && slices.Contains(calling, n.Data) && n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
	var b bytes.Buffer
	err = html.Render(&b, root)
	return b.Bytes(), err
}
