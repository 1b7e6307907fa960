package main

import "strings"

// judged are changes that are easily judged wrongly: lockouts, which permit less and are urgent
// all the same, disguised links, and forms that the API's document does not show. They come
// after the other known changes.
var judged = []change{
	{countries, `null`, `["DE"]`, "weaker", "medium", "country `DE` allowed"},
	{rbac, `"custom_scopes":[]`, `"custom_scopes":null`, "neutral", "info", "`/custom_scopes`: `[]` → `null`"},
	{rbac, `"service_admin":{"permissions":[{"resource_id":"documents","actions":["*"]}]}`, `"service_admin":{"permissions":[]}`, "stronger", "high", "lockout: default role `admin` has no permission left for certain, and 1 more change"},
	{passwords, `"ZXCVBN","luds_min_password_length":16,"luds_min_password_complexity":1`, `"LUDS","luds_min_password_length":16,"luds_min_password_complexity":5`, "stronger", "high", "lockout: no password meets the rules now, so nobody can set one, and 1 more change"},
	{tokens, `"attribute_mapping":"{\"email\":\"sub\"}"`, `"attribute_mapping":{"email":"sub"}`, "neutral", "info", "`/profile_id=p-1/attribute_mapping`: `\"{\\\"email\\\":\\\"sub\\\"}\"` → `{\"email\":\"sub\"}`"},
	{tokens, "\"jwks_url\":\"https://evil.example.com/keys\",\n\"pem_files\":[{\"pem_file_id\":\"k-2\",\"public_key\":\"CCCC\"}]", `"jwks_url":"","pem_files":null`, "stronger", "high", "lockout: no profile accepts any token any more, and 2 more changes"},
	{templates, `"button_border_radius":4,`, `"button_border_radius":4.5,`, "neutral", "info", "template `t-1`: button_border_radius: `4` → `4.5`"},
	{templates, `<p>Welcome</p>`, `<p>Welcome</p><a href=\"https://app.example.com(@evil.example/\">`, "weaker", "high", "template `t-1` now links to `app.example.com`, and 2 more changes"},
	{templates, `"from_domain":"mail.example.net"`, `"from_domain":""`, "unknown", "medium", "template `t-1` names no sender's domain any more, it was `mail.example.net`: the service chooses one, and 2 more changes"},
}

// compareAction compares how the end of a person's action is judged: by what it may break or
// open, where no setting shows it.
func (s *stage) compareAction(e entry) {
	want := "low neutral "
	switch {
	case e.Type != "action.ended":
		return
	case strings.Contains(e.Summary, "secret.delete"), strings.Contains(e.Summary, "public_token.delete"):
		want = "high stronger "
	case strings.Contains(e.Summary, "redirect_urls.set_types"):
		want = "high unknown "
	}
	s.compare(want+e.Summary, e.Severity+" "+e.Direction+" "+e.Summary)
}
