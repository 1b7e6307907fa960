package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/auditrelay/auditrelay/internal/trail/timeline"
)

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
