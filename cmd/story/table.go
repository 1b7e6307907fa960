package main

import "slices"

// change is a known change of one setting, and its entry.
type change struct {
	setting             string
	old, now            string // parts of the state
	direction, severity string
	sentence            string
}

const (
	rbac      = "rbac_policy"
	passwords = "password_strength_config"
	countries = "sms_country_codes"
	tokens    = "trusted_token_profiles"
	templates = "email_templates"
	streaming = "event_log_streaming"
)

// known are the changes, in their order.
var known = slices.Concat([]change{
	{rbac, `["read","create"]`, `["read","create","delete"]`, "weaker", "medium", "role `editor` gained `delete` on `documents`"},
	{rbac, `["read","create","delete"]`, `["read"]`, "stronger", "low", "role `editor` lost `create` and `delete` on `documents`"},
	{rbac, `"service_member":{"permissions":[{"resource_id":"documents","actions":["read"]}]}`, `"service_member":{"permissions":[{"resource_id":"documents","actions":["read","delete"]}]}`, "weaker", "high", "default role `member` gained `delete` on `documents`"},
	{rbac, `"service_member":{"permissions":[{"resource_id":"documents","actions":["read","delete"]}]}`, `"service_member":{"permissions":[{"resource_id":"documents","actions":["read"]}]}`, "stronger", "low", "default role `member` lost `delete` on `documents`"},
	{rbac, `{"resource_id":"invoices","actions":["read"]}`, `{"resource_id":"invoices","actions":["*"]}`, "weaker", "high", "role `auditor` gained `pay` on `invoices`, by the wildcard `*`"},
	{rbac, `{"resource_id":"invoices","actions":["*"]}`, `{"resource_id":"invoices","actions":["read","pay"]}`, "unknown", "low", "role `auditor` has the wildcard `*` on `invoices` no longer: it permits no less yet, and no action listed later"},
	{rbac, `"service_user":{"permissions":[]}`, `"service_user":{"permissions":[{"resource_id":"invoices","actions":["pay"]}]}`, "weaker", "high", "default role `user` gained `pay` on `invoices`"},
	{rbac, `"description":"Edits"`, `"description":"Writes"`, "neutral", "info", "description of role `editor` changed"},
	{rbac, `"available_actions":["create","read","delete"]`, `"available_actions":["create","read","delete","share"]`, "weaker", "high", "default role `admin` gained `share` on `documents`, and 1 more change"},
	{rbac, `"custom_scopes":[{"scope":"read:documents","description":"Reads","permissions":[{"resource_id":"documents","actions":["read"]}]}]`, `"custom_scopes":[]`, "stronger", "low", "scope `read:documents` lost `read` on `documents`, and 1 more change"},
	{rbac, `{"role_id":"editor"`, `{"role_id":"guest","description":"","permissions":[{"resource_id":"secrets","actions":["read"]}]},{"role_id":"editor"`, "unknown", "medium", "role `guest` gained `read` on `secrets`, a resource that no list defines, and 1 more change"},
	{passwords, `"luds_min_password_length":12`, `"luds_min_password_length":8`, "weaker", "high", "minimum password length 12 → 8"},
	{passwords, `"luds_min_password_length":8`, `"luds_min_password_length":16`, "stronger", "low", "minimum password length 8 → 16"},
	{passwords, `"luds_min_password_complexity":3`, `"luds_min_password_complexity":1`, "weaker", "high", "minimum password complexity 3 → 1"},
	{passwords, `"check_breach_on_creation":true`, `"check_breach_on_creation":false`, "weaker", "high", "new passwords are no longer checked against breaches"},
	{passwords, `"check_breach_on_creation":false`, `"check_breach_on_creation":true`, "stronger", "low", "new passwords are checked against breaches"},
	{passwords, `"validate_on_authentication":true`, `"validate_on_authentication":false`, "weaker", "medium", "existing passwords are no longer held against the check of strength at log-in"},
	{passwords, `"LUDS"`, `"ZXCVBN"`, "mixed", "medium", "password check LUDS → ZXCVBN"},
	{countries, `"US"]`, `"US","KP"]`, "weaker", "medium", "country `KP` allowed"},
	{countries, `"DE",`, ``, "stronger", "low", "country `DE` no longer allowed"},
	{countries, `"FR"`, `"IT"`, "mixed", "medium", "country `IT` allowed, and 1 more change"},
	{countries, `["IT","US","KP"]`, `null`, "stronger", "high", "lockout: no country allowed before is left, so nobody who was texted can be, and 3 more changes"},
	{tokens, `{"pem_file_id":"k-2","public_key":"BBBB"}`, `{"pem_file_id":"k-2","public_key":"CCCC"}`, "mixed", "critical", "profile `p-1`: public key `k-2` replaced (SHA-256 4a8d8134f29b0b7b… → 90b4853e06e722c6…)"},
	{tokens, `{"pem_file_id":"k-1","public_key":"AAAA"},`, ``, "stronger", "low", "profile `p-1`: public key `k-1` removed (SHA-256 63c1dd951ffedf6f…)"},
	{tokens, `"can_jit_provision":false`, `"can_jit_provision":true`, "weaker", "high", "profile `p-1`: tokens can create users"},
	{tokens, `"https://idp.example.com"`, `"https://evil.example.com"`, "mixed", "critical", "profile `p-1`: issuer `https://idp.example.com` → `https://evil.example.com`"},
	{tokens, `"audience":"app"`, `"audience":"other"`, "mixed", "high", "profile `p-1`: audience `app` → `other`"},
	{tokens, `"jwks_url":""`, `"jwks_url":"https://evil.example.com/keys"`, "weaker", "critical", "profile `p-1`: address of the keys `` → `https://evil.example.com/keys`"},
	{tokens, `"attribute_mapping":"{}"`, `"attribute_mapping":"{\"email\":\"sub\"}"`, "unknown", "high", "profile `p-1`: attribute mapping: `{}` → `{\"email\":\"sub\"}`"},
	{tokens, `"name":"Partner"`, `"name":"Partners"`, "neutral", "info", "profile `p-1`: name: `Partner` → `Partners`"},
	{templates, `https://example.com/login`, `https://evil.example.org/login`, "mixed", "high", "template `t-1` now links to `evil.example.org`, and 2 more changes"},
	{templates, `"from_domain":"example.com","from_name"`, `"from_domain":"mail.example.net","from_name"`, "weaker", "high", "template `t-1` now sends from `mail.example.net`, and 1 more change"},
	{templates, `"button_color":"#000000"`, `"button_color":"#0000ff"`, "neutral", "info", "template `t-1`: button_color: `#000000` → `#0000ff`"},
	{templates, `<p>Hello</p>`, `<p>Welcome</p>`, "neutral", "low", "template `t-1`: html_content changed, 1 line removed and 1 line added"},
	{templates, `,
{"template_id":"t-2","name":"Invite","sender_information":{"from_domain":"example.com"}}`, ``, "stronger", "low", "template `t-2` (`Invite`) removed, and 1 more change"},
	{streaming, `"loki.example.com"`, `"evil.example.com"`, "weaker", "critical", "the event log now goes to `evil.example.com`, it went to `loki.example.com`"},
	{streaming, `"username":"log"`, `"username":"other"`, "weaker", "high", "the event log goes to account `other` at `evil.example.com`, it was `log`"},
	{streaming, `"abcd"`, `"wxyz"`, "unknown", "low", "the event log goes to `evil.example.com` with another credential"},
	{streaming, `"ACTIVE"`, `"DISABLED"`, "weaker", "high", "streaming status: `ACTIVE` → `DISABLED`"},
	{streaming, `"DISABLED"`, `"ACTIVE"`, "stronger", "low", "streaming status: `DISABLED` → `ACTIVE`"},
}, judged)

// same are reorderings, and other spellings of one state: no entries.
var same = []change{
	{setting: rbac, old: `["read","pay"]}]}`, now: `["pay","read"]}]}`},
	{setting: rbac, old: `"available_actions":["create","read","delete","share"]`, now: `"available_actions":["share","delete","read","create"]`},
	{
		setting: rbac, old: `{"role_id":"guest","description":"","permissions":[{"resource_id":"secrets","actions":["read"]}]},{"role_id":"editor","description":"Writes","permissions":[{"resource_id":"documents","actions":["read"]}]}`,
		now: `{"role_id":"editor","description":"Writes","permissions":[{"resource_id":"documents","actions":["read"]}]},{"role_id":"guest","description":"","permissions":[{"resource_id":"secrets","actions":["read"]}]}`,
	},
	{setting: rbac, old: `"service_resources":[],`, now: ` "service_resources" : [ ] , `},
	{setting: passwords, old: `{"check_breach_on_creation":true,`, now: `{ "check_breach_on_creation" : true , `},
	{setting: passwords, old: `"luds_min_password_length":16`, now: `"luds_min_password_length":1.6e1`},
	{setting: tokens, old: `"public_key_type":"PEM"`, now: `"public_key_type":"\u0050EM"`},
	{setting: templates, old: `"name":"Login",`, now: `"name"  :  "Login",`},
	{setting: templates, old: `#0000ff`, now: `\u00230000ff`},
	{setting: streaming, old: `"hostname":"evil.example.com","username":"other"`, now: `"username":"other","hostname":"evil.example.com"`},
}
