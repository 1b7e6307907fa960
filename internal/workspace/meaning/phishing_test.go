package meaning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// mail is a project's only template, with an HTML and a plain part.
func mail(t *testing.T, html, plain string) json.RawMessage {
	t.Helper()
	return mustJSON(t, []any{map[string]any{
		"template_id": "t-1", "name": "Log in", "sender_information": map[string]any{"from_domain": "example.com"},
		"custom_html_customization": map[string]any{"html_content": html, "plaintext_content": plain, "subject": "Log in"},
	}})
}

const (
	honestHTML  = `<p>Hello {{name}}, welcome.</p><a href="https://app.example.com/login?to={{url}}">Log in</a><a href="{{magic_link}}">or so</a>`
	honestPlain = "Hello {{name}}. Log in: https://app.example.com/login or {{magic_link}} (help@example.com)"
)

// phishingLinks are disguises of a link to evil.example next to a known host, each added to
// the HTML of an honest mail.
var phishingLinks = []string{
	// A browser takes what stands before the last @ of the authority for a user's name.
	`<a href="https://app.example.com(@evil.example/">`,
	`<a href="https://app.example.com'@evil.example/">`,
	`<a href="https://app.example.com)@evil.example/">`,
	`<a href="https://app.example.com @evil.example/">`,
	`<a href="https://app.example.com&lt;@evil.example/">`,
	`<a href="https://app.example.com&nbsp;@evil.example/">`,
	`<a href="https://app.example.com&quot;@evil.example/">`,
	`<a href='https://app.example.com"@evil.example/'>`,
	`<a href="https://app.example.com:443@evil.example/">`,
	`<a href="https://app.example.com&commat;evil.example/">`,
	`<a href="https://app.example.com%2f@evil.example/">`,
	`<a href="https://app.example.com@app.example.com@evil.example/">`,
	`<a href="https://` + strings.Repeat("app.example.com.", 10) + `@evil.example/">`,
	// Schemes without slashes, and slashes of other kinds.
	`<a href="https:evil.example">`, `<a href="HTTPS:/evil.example">`, `<a href="https:\\evil.example">`, `<a href="https:/\/\evil.example">`,
	`<a href="//evil.example">`, `<a href="\\evil.example">`, `<a href="/\evil.example">`, `<a href=" &#9;//evil.example">`,
	"<a href=\"ht\ntps://ev\til.exa\rmple/\">", `<a href="&#1; https://evil.example">`, `<a href="https://evil。example/">`, `<a href="https://evil&shy;.example/">`,
	`<a href="https://ｅｖｉｌ.example/">`, `<a href="https://%65vil.example/">`, `<a href="https://EVIL.EXAMPLE./">`, `<a href=https:evil.example>`,
	// Elsewhere than in a link.
	`<noscript><a href="https:evil.example"></noscript>`, `<noscript><meta http-equiv=refresh content="0;url=https:evil.example"></noscript>`,
	"<meta http-equiv=refresh content=\"0;\turl=ht\ttps://evil.example\">", "<meta http-equiv=\"Refresh\" content=\"0; u\trl = 'https:evil.example'\">",
	`<meta http-equiv=refresh content="0.5 https:evil.example">`, `<base href="https:evil.example">`,
	`<!--[if mso]><a href="https:evil.example">Log in</a><![endif]-->`, `<!--[if gte mso 9]><v:roundrect href="\\evil.example"/><![endif]-->`,
	`<!--[if !mso]><!--><a href="https:evil.example"><!--<![endif]-->`, `<![if !mso]><a href="https:evil.example"><![endif]>`,
	`<form action="https:evil.example"><button>Log in</button></form>`, `<button formaction="https:evil.example">`, `<area href="https:evil.example">`,
	`<svg><a xlink:href="https:evil.example"></svg>`, `<iframe srcdoc="<a href='https:evil.example'>">`, `<iframe src="https:evil.example"></iframe>`,
	`<textarea></textarea><a href="https:evil.example">`, `<title></title><a href='https:evil.example'>`, `<xmp><a href="https:evil.example"></xmp>`,
	`<style><a title="</style><a href='https:evil.example'>">`, `<template><a href="https:evil.example"></template>`, `<img srcset="a.png 1x, https:evil.example 2x">`,
	`<a href="https:evil.example" href="https://app.example.com">`, `<a/href="https:evil.example"/>`, `<a href="https://app.example.com/go?to=https%3A%2F%2Fevil.example">`,
	`<a href="https://app.example.com/go?to=https%253A%252F%252Fevil.example">`, `<a href="{{#if x}}https://evil.example{{else}}{{magic_link}}{{/if}}">`,
	`<a href="evil.example/login">`, `<a href="mailto:help@evil.example?subject=Hi">`, `<a href="mailto:help%40evil.example">`,
	`<a href="mailto:help@example.com?bcc=x@evil.example">`, `<a style="background:url(//evil.example/x)">`, `<a onclick="location='https:evil.example'">`,
	// Of equal attributes, readers take the first or the last; an animation gives a link another address.
	`<meta http-equiv=refresh content="0;/&#9;/evil.example" content="">`, `<meta http-equiv=refresh http-equiv=x content="0;/&#9;/evil.example">`,
	`<svg><a><animate attributeName="href" values="#;/&#9;/evil.example"/></a></svg>`, `<div style="background:url(\2f\2f evil.example/x)">`,
	// In text, which mail programs link by themselves.
	`<p>Log in at evil.example/login</p>`, `<p>Log in at evil.example.</p>`, `<p>(evil.example)</p>`, `<p>evil<b>.example</b>/login</p>`, `<p>evil&#46;example/login</p>`,
	`<p>www.evil.example</p>`, `<p>help@evil.example</p>`, `<p>ftp://evil.example</p>`, `<noscript>Log in at evil.example/login</noscript>`,
	`<p>“evil.example”</p>`, `<p>«evil.example/login»</p>`, `<p>evil.example…</p>`, `<p>—evil.example—</p>`, `<p>👉evil.example/login</p>`, `<p>→evil.example</p>`, `<p>“x@evil.example”</p>`,
	`<p>Log in:evil.example/login</p>`, `<p>Log in：evil.example:80</p>`, `<p>or/evil.example/login</p>`, `<p>$evil.example</p>`, `<p>&evil.example/login</p>`, `<p>{evil.example}</p>`, `<p>#evil.example/</p>`,
	`<p>EVIL.example:8443</p>`, `<p>evil&shy;.example/</p>`, `<p>https://app.example.com(@evil.example/</p>`, `<p>https://app.example.com&nbsp;@evil.example/</p>`,
}

// suspiciousLinks are those that lead somewhere, though nobody can say where.
var suspiciousLinks = []string{
	`<form action="{{other}}">`, `<a href="{{other}}">`, `<a href="{{magic_link}}.evil">`, `<a href="{{magic_link}}@evil">`, `<a href="https://{{host}}/">`,
	`<a href="https://app.example.com{{x}}/">`, `<a href="https://exa mple.com/">`, `<a href="https://[::1/">`, `<a href="https://">`, `<a href="https://a%zz.example">`,
	`<a href="${other}">`, `<a href="%%other%%">`, `<a href="*|OTHER|*">`, `<a href="javascript:go()">`, `<a href="tel:+1900123">`, `<a href="data:text/html,hi">`,
	`<a href="https://` + strings.Repeat("a", 5000) + `@evil.example">`, `<a href="http://2130706433/">`, `<a href="http://0x7f.1/">`, `<a href="https://ехample.com/">`,
	`<meta http-equiv=refresh content="0;url={{other}}">`, `<a href="intent://x#Intent;end">`, `<a href="https://bit.ly/x">`,
	// The value of a placeholder may end the authority before the host that stands there.
	`<a href="https://{{other}}@app.example.com/">`, `<a href="http{{x}}">`, `<a href="ht{{x}}tps://app.example.com/">`, `<a href="/{{x}}">`,
	`<p>203.0.113.7/login</p>`, `<a href="203.0.113.7:8080">`,
	// Only the part that is read names a known host.
	`<a href="https://` + strings.Repeat("a", 4096-8-16) + `@app.example.com@evil.example/">`, `<a href="https:/&#9;/` + strings.Repeat("a", 4096-8-16) + `@app.example.com@evil.example/">`,
	strings.Repeat(`<!--`, 400) + `<a href="https:evil">`,
}

func TestPhishingLinks(t *testing.T) {
	t.Parallel()
	before := mail(t, honestHTML, honestPlain)
	check := func(name string, after json.RawMessage, place string) {
		t.Helper()
		r, err := Read(kinds.EmailTemplates.Name, before, after)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, rank(r.Severity), rank(High), "%s: %s", name, r.Summary)
		assert.Contains(t, []Direction{Weaker, Mixed, Unknown}, r.Direction, name)
		assert.Contains(t, string(mustJSON(t, r.Statements)), place, name)
	}
	for _, link := range phishingLinks {
		check(link, mail(t, honestHTML+link, honestPlain), "evil.example")
	}
	for _, link := range suspiciousLinks {
		check(link, mail(t, honestHTML+link, honestPlain), "link")
	}
	for _, text := range []string{
		"evil.example/login", "evil.example", "www.evil.example", "https:evil.example", "https://app.example.com(@evil.example/", "//evil.example/x", "help@evil.example",
		"“evil.example”", "evil.example…", "in:evil.example/login", "👉evil.example", "<https://evil.example>", "evil.example:80", "ｅｖｉｌ．example/x",
	} {
		check(text, mail(t, honestHTML, honestPlain+"\nLog in at "+text), "evil.example")
	}
	elsewhere := `[{"template_id":"t-1","custom_html_customization":{"html_content":["<a href=https:evil.example>"]}}]`
	check("an array of HTML", json.RawMessage(elsewhere), "`evil.example`")
	check("another member", json.RawMessage(strings.ReplaceAll(elsewhere, "html_content", "footer")), "`evil.example`")
}

// TestHarmlessMailEditsStayLow: an alarm at each typo would soon be read by nobody.
func TestHarmlessMailEditsStayLow(t *testing.T) {
	t.Parallel()
	before := mail(t, honestHTML, honestPlain)
	for _, edit := range [][2]string{
		{"welcome", "wellcome"},
		{"welcome.", "welcome.Please log in"},
		{"welcome", "welcome, Mr./Mrs. {{organization.name}}, e.g. to version 1.2.3 at 9.30 a.m. (and/or later), see index.html or Node.js"},
		{"<p>", `<p style="color:#0000ff;font:12px/1.5 Arial, sans-serif" class="a.in">`},
		{"<p>", `<style>td.in{color:red} a.to > b.com{x:y} /* // a comment */</style><p>`},
		{"<p>", `<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd"><p>`},
		{"<p>", `<html xmlns="http://www.w3.org/1999/xhtml" xmlns:v="urn:schemas-microsoft-com:vml"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="X-UA-Compatible" content="IE=edge"><p>`},
		{"<p>", `<img src="cid:logo"><img src="data:image/png;base64,iVBORw0KGgo=" alt="Us, Inc."><p>`},
		{"/login?", "/signin?x=1&"},
		{"Log in<", "Sign in<"},
		{"https://app.example.com/login", "HTTPS://APP.example.com:443/login"},
		{`<a href="{{magic_link}}">`, `<a class="b" href="{{ magic_link }}?utm=1" target=_blank>`},
		{"</a>", `</a><a href="#top">top</a><a href="/help">help</a>`},
		{"</a>", `</a> {{first_name}} &copy; 2026, mail us at help@example.com.`},
		{"welcome", "“welcome”… «5.5.2026» version 10.0.0.1, 1.2.3/4, 24/7, he/she, 3:4, N/A, a:b.c, {a.b}, {{a.b}}/x, $5.00, C++/C#, v2.0:beta"},
		{"<p>", `<p><svg><circle r=1><animate attributeName="cx" values="0.5 1.25;10" from="0" to="1.5"/></circle></svg>`},
		{"<p>", `<p><img src="data:image/png;base64,` + strings.Repeat("iVBORw0KGgo", 1000) + `=">`},
	} {
		r, err := Read(kinds.EmailTemplates.Name, before, mail(t, strings.Replace(honestHTML, edit[0], edit[1], 1), honestPlain))
		require.NoError(t, err)
		assert.LessOrEqual(t, rank(r.Severity), rank(Low), "%s: %s", edit[1], r.Summary)
		assert.Equal(t, Neutral, r.Direction, edit[1])
	}
}

// TestHostileMarkup: templates may be large and nested, and take time in proportion to
// their size. What is nested too deeply to be read is suspicious.
func TestPhishingInHostileMarkup(t *testing.T) {
	t.Parallel()
	n := 100_000
	if testing.Short() {
		n /= 10
	}
	for _, part := range []string{
		"<noscript>", "<!--", "<iframe srcdoc='", "<title>", "<a href=//", "//@", "https:", "{{", "<a href=\"https://", "&#47;", "<![CDATA[", "%252f", "a.b/", "@", "<b>", "x.example ", "{{a}}", "www.",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			content := strings.Repeat(part, n)
			r, err := Read(kinds.EmailTemplates.Name, mail(t, "x", ""), mail(t, content, content))
			require.NoError(t, err)
			requireBounded(t, r)
			content += "> ' <a href='https:evil.example'>"
			r, err = Read(kinds.EmailTemplates.Name, mail(t, "x", ""), mail(t, content, ""))
			require.NoError(t, err)
			assert.GreaterOrEqual(t, rank(r.Severity), rank(High))
		})
	}
	many := make([]string, 60_000)
	for i := range many {
		many[i] = fmt.Sprintf("https://h%d.example", i)
	}
	before, after := mail(t, "x", strings.Join(many, " ")), mail(t, "x", strings.Join(append(many, "https://evil.example"), " "))
	r, err := Read(kinds.EmailTemplates.Name, before, after)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, rank(r.Severity), rank(High), "a link beyond the bound of the set is seen too")
}

func TestEmptiedSenderIsNotStronger(t *testing.T) {
	t.Parallel()
	for _, emptied := range []string{`""`, `null`, `" "`} {
		r, err := Read(kinds.EmailTemplates.Name, json.RawMessage(oneMail), json.RawMessage(swap(oneMail, `"from_domain":"example.com"`, `"from_domain":`+emptied)))
		require.NoError(t, err)
		assert.Equal(t, []any{Unknown, Medium}, []any{r.Direction, r.Severity}, emptied)
	}
}
