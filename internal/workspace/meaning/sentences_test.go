package meaning

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// told is a statement in one line: severity, direction, rule, sentence and witness.
func told(s Statement) string {
	line := fmt.Sprintf("%s %s %s: %s", s.Severity, s.Direction, s.Rule, s.Sentence)
	if s.Witness != "" {
		line += " | " + s.Witness
	}
	return line
}

const (
	rbacLists  = `"custom_resources":[{"resource_id":"documents","available_actions":["read","write","delete"]}]`
	loki       = `{"destination_type":"GRAFANA_LOKI","destination_config":{"grafana_loki":{"hostname":"relay.example.com","username":"u","password_last_four":"abcd"}},"streaming_status":"ACTIVE"}`
	datadog    = `{"destination_type":"DATADOG","destination_config":{"datadog":{"site":"US","api_key_last_four":"abcd"}},"streaming_status":"ACTIVE"}`
	ludsState  = `{"validation_policy":"LUDS","luds_min_password_length":12,"luds_min_password_complexity":2,"check_breach_on_creation":true,"check_breach_on_authentication":true,"validate_on_authentication":true}`
	oneProfile = `[{"profile_id":"p-1","name":"n","audience":"a","issuer":"i","pem_files":[{"pem_file_id":"k-2","public_key":"x"}],"can_jit_provision":false,"jwks_url":"","attribute_mapping":"m","public_key_type":"JWK"}]`
	oneMail    = `[{"template_id":"t-1","name":"Log in","sender_information":{"from_domain":"example.com","from_name":"Us"},"prebuilt_customization":{"button_color":"#000"},"custom_html_customization":{"html_content":"<p>\nhello\n<a href=\"https://example.com/in\">","subject":"s"}}]`
	onePEM     = `"-----BEGIN PUBLIC KEY-----\nAQID\n-----END PUBLIC KEY-----\n"`
	oneProject = `{"project_slug":"p","name":"Shop","vertical":"ALL","created_at":"1"}`
)

// holds is an RBAC policy with one role.
func holds(actions string) string {
	return `{` + rbacLists + `,"custom_roles":[{"role_id":"admin","permissions":[{"resource_id":"documents","actions":[` + actions + `]}]}]}`
}

// swap replaces parts of a state.
func swap(state string, oldnew ...string) string {
	return strings.NewReplacer(oldnew...).Replace(state)
}

func TestSentences(t *testing.T) {
	t.Parallel()
	met := map[string]bool{}
	for _, c := range []struct {
		name, subject, before, after string
		want                         []string
	}{
		{"action granted", "rbac_policy", holds(`"read"`), holds(`"read","delete"`), []string{
			"medium weaker rbac.role_gained: role `admin` gained `delete` on `documents` | `admin` may now `delete` `documents`",
		}},
		{"wildcard granted", "rbac_policy", holds(`"read"`), holds(`"*"`), []string{
			"high weaker rbac.wildcard_gained: role `admin` gained `delete` and `write` on `documents`, by the wildcard `*` | `admin` may now `delete` `documents`",
		}},
		{"wildcard written out", "rbac_policy", holds(`"*"`), holds(`"read","write","delete"`), []string{
			"low unknown rbac.wildcard_spelled_out: role `admin` has the wildcard `*` on `documents` no longer: it permits no less yet, and no action listed later",
		}},
		{"wildcard and a name", "rbac_policy", holds(`"*","read"`), holds(`"*"`), []string{
			"info neutral rbac.no_effect: permissions of role `admin` on `documents` are written differently and permit the same",
		}},
		{"action off the list", "rbac_policy", holds(`"read","delete"`), swap(holds(`"read","delete"`), `"write","delete"]`, `"write"]`), []string{
			"medium unknown rbac.uncertain: role `admin` may do `delete` on `documents` no longer for certain, and perhaps still",
			"info neutral rbac.resource_changed: resource `documents` no longer lists `delete`",
		}},
		{"unlisted action gone", "rbac_policy", holds(`"read","fly"`), holds(`"read"`), []string{
			"low unknown rbac.perhaps_lost: role `admin` lost `fly` on `documents`, which it held only perhaps",
		}},
		{"administrators locked out", "rbac_policy", `{` + rbacLists + `,"b_super_admin":{"permissions":[{"resource_id":"documents","actions":["*"]}]}}`, `{` + rbacLists + `,"b_super_admin":{"permissions":[]}}`, []string{
			"high stronger rbac.lockout: lockout: default role `super_admin` has no permission left for certain | whoever is `super_admin` may do nothing for certain now",
			"low stronger rbac.lost: default role `super_admin` lost `delete`, `read` and `write` on `documents`, by the wildcard `*` | `super_admin` may no longer `delete` `documents`",
		}},
		{"administrators locked out, if the service takes * for every resource", "rbac_policy", `{` + rbacLists + `,"b_admin":{"permissions":[{"resource_id":"*","actions":["*"]}]}}`, `{` + rbacLists + `,"b_admin":{"permissions":[]}}`, []string{
			"high unknown rbac.lockout_perhaps: lockout: default role `admin` has no permission left for certain",
			"low unknown rbac.perhaps_lost: default role `admin` lost `*` on `*`, which the service may have taken for every resource",
		}},
		{"administrators' resources gone", "rbac_policy", `{` + rbacLists + `,"b_admin":{"permissions":[{"resource_id":"documents","actions":["read"]}]}}`, `{"b_admin":{"permissions":[{"resource_id":"documents","actions":["read"]}]}}`, []string{
			"high unknown rbac.lockout_perhaps: lockout: default role `admin` has no permission left for certain",
			"medium unknown rbac.uncertain: default role `admin` may do `read` on `documents` no longer for certain, and perhaps still",
			"info neutral rbac.resource_changed: resource `documents` removed",
		}},
		{"wildcard in place of all names", "rbac_policy", holds(`"read","write","delete"`), holds(`"*"`), []string{
			"low unknown rbac.wildcard_named: role `admin` has the wildcard `*` on `documents` now: it permits no more yet, and every action listed later",
		}},
		{"unlisted action beside a lost one", "rbac_policy", holds(`"read","write"`), holds(`"read","fly"`), []string{
			"medium unknown rbac.unlisted_action: role `admin` gained `fly` on `documents`, which lists no such action",
			"low stronger rbac.lost: role `admin` lost `write` on `documents` | `admin` may no longer `write` `documents`",
		}},
		{"definition taken, permission given", "rbac_policy", holds(``), swap(holds(`"delete"`), `{"resource_id":"documents","available_actions":["read","write","delete"]}`, ``), []string{
			"medium unknown rbac.undefined_resource: role `admin` gained `delete` on `documents`, a resource that no list defines",
			"info neutral rbac.resource_changed: resource `documents` removed",
		}},
		{"default role that the document does not name", "rbac_policy", `{` + rbacLists + `}`, `{` + rbacLists + `,"b_root":{"permissions":[{"resource_id":"documents","actions":["delete"]}]}}`, []string{
			"high weaker rbac.default_role_gained: default role `root` gained `delete` on `documents` | `root` may now `delete` `documents`",
			"info neutral rbac.holder_changed: default role `root` added",
		}},
		{"wildcard as resource", "rbac_policy", `{"b_user":{"permissions":[]}}`, `{"b_user":{"permissions":[{"resource_id":"*","actions":["*"]}]}}`, []string{
			"high unknown rbac.wildcard_resource: default role `user` gained `*` on `*`, which the service may take for every resource",
		}},
		{"action taken", "rbac_policy", holds(`"read","delete"`), holds(`"read"`), []string{
			"low stronger rbac.lost: role `admin` lost `delete` on `documents` | `admin` may no longer `delete` `documents`",
		}},
		{"unlisted action", "rbac_policy", holds(`"read"`), holds(`"read","fly"`), []string{
			"medium unknown rbac.unlisted_action: role `admin` gained `fly` on `documents`, which lists no such action",
		}},
		{"undefined resource", "rbac_policy", `{"b_user":{"permissions":[]}}`, `{"b_user":{"permissions":[{"resource_id":"self","actions":["rename"]}]}}`, []string{
			"medium unknown rbac.undefined_resource: default role `user` gained `rename` on `self`, a resource that no list defines",
		}},
		{
			"default role and scope", "rbac_policy",
			`{` + rbacLists + `}`,
			`{` + rbacLists + `,"b_member":{"permissions":[{"resource_id":"documents","actions":["delete"]}]},"custom_scopes":[{"scope":"s","permissions":[{"resource_id":"documents","actions":["read"]}]}]}`,
			[]string{
				"high weaker rbac.default_role_gained: default role `member` gained `delete` on `documents` | `member` may now `delete` `documents`",
				"medium weaker rbac.scope_gained: scope `s` gained `read` on `documents` | scope `s` may now `read` `documents`",
				"info neutral rbac.holder_changed: default role `member` added",
				"info neutral rbac.holder_changed: scope `s` added",
			},
		},
		{"resource lists another action", "rbac_policy", holds(`"*"`), swap(holds(`"*"`), `"delete"`, `"delete","share"`), []string{
			"medium weaker rbac.role_gained: role `admin` gained `share` on `documents` | `admin` may now `share` `documents`",
			"info neutral rbac.resource_changed: resource `documents` now lists `share`",
		}},
		{"condition nobody knows", "rbac_policy", holds(`"read"`), swap(holds(`"read"`), `"actions"`, `"effect":"deny","actions"`), []string{
			"medium unknown setting.changed: `/custom_roles` gained `[{\"permissions\":[{\"effect\":\"deny\",\"resource_id\":\"documents\"}],\"role_id\":\"admin\"}]`",
		}},

		{"length", "password_strength_config", ludsState, swap(ludsState, "12", "8"), []string{
			"high weaker password.strength_weaker: minimum password length 12 → 8 | `Aaaaaaaa` (8 characters, 2 classes) is accepted now",
		}},
		{"longer", "password_strength_config", ludsState, swap(ludsState, "12", "14"), []string{
			"low stronger password.strength_stronger: minimum password length 12 → 14 | `Aaaaaaaaaaaa` (12 characters, 2 classes) is refused now",
		}},
		{"no password any more", "password_strength_config", ludsState, swap(ludsState, `complexity":2`, `complexity":5`), []string{
			"high stronger password.lockout: lockout: no password meets the rules now, so nobody can set one | no new password is accepted now",
			"high stronger password.lockout: lockout: no password meets the rules at log-in now, so nobody can log in with one | no existing password is accepted at log-in now",
			"low stronger password.strength_stronger: minimum password complexity 2 → 5 | `Aaaaaaaaaaaa` (12 characters, 2 classes) is refused now",
		}},
		{"a length that people cannot have", "password_strength_config", ludsState, swap(ludsState, "12", "65"), []string{
			"high stronger password.lockout: lockout: hardly any password has 65 characters and meets the rules now, so hardly anybody can set one | no new password of 64 characters is accepted now",
			"high stronger password.lockout: lockout: hardly any password has 65 characters and meets the rules at log-in now, so hardly anybody can log in with one | no existing password of 64 characters is accepted at log-in now",
			"low stronger password.strength_stronger: minimum password length 12 → 65 | `Aaaaaaaaaaaa` (12 characters, 2 classes) is refused now",
		}},
		{"longer and simpler", "password_strength_config", ludsState, swap(ludsState, "12", "14", "complexity\":2", "complexity\":1"), []string{
			"high mixed password.strength_traded: minimum password length 12 → 14, minimum password complexity 2 → 1 | `aaaaaaaaaaaaaa` (14 characters, 1 class) is accepted now; `Aaaaaaaaaaaa` (12 characters, 2 classes) is refused now",
		}},
		{"another check", "password_strength_config", ludsState, swap(ludsState, "LUDS", "ZXCVBN", "12", "null"), []string{
			"medium mixed password.strength_mixed: password check LUDS → ZXCVBN, minimum password length 12 → none | a random password (9 characters, 1 class) is accepted now; `Aaaaaaaaaaaa` (12 characters, 2 classes) is refused now",
		}},
		{"check nobody knows", "password_strength_config", ludsState, swap(ludsState, "LUDS", "NONE"), []string{
			"high unknown password.strength_unknown: password check LUDS → \"NONE\"",
		}},
		{"not in force", "password_strength_config", swap(ludsState, "LUDS", "ZXCVBN"), swap(ludsState, "LUDS", "ZXCVBN", "12", "8"), []string{
			"info neutral password.no_effect: minimum password length 12 → 8, which ZXCVBN does not use",
		}},
		{"more classes than characters", "password_strength_config", swap(ludsState, "12", "1"), swap(ludsState, "12", "2"), []string{
			"info neutral password.no_effect: minimum password length 1 → 2, and the same passwords are accepted",
		}},
		{"switches off", "password_strength_config", ludsState, swap(ludsState, "true", "false"), []string{
			"high weaker password.breach_check_off: new passwords are no longer checked against breaches | a new password known from a breach is accepted now",
			"high weaker password.breach_check_off: passwords are no longer checked against breaches at log-in | an existing password known from a breach is accepted at log-in now",
			"medium weaker password.validation_off: existing passwords are no longer held against the check of strength at log-in | an existing password that is too weak is accepted at log-in now",
		}},
		{"switches on", "password_strength_config", swap(ludsState, "true", "false"), ludsState, []string{
			"low stronger password.breach_check_on: new passwords are checked against breaches | a new password known from a breach is refused now",
			"low stronger password.breach_check_on: passwords are checked against breaches at log-in | an existing password known from a breach is refused at log-in now",
			"low stronger password.validation_on: existing passwords are held against the check of strength at log-in | an existing password that is too weak is refused at log-in now",
		}},
		{"long values that begin alike", "password_strength_config", swap(ludsState, "LUDS", strings.Repeat("x", 500)+"y"), swap(ludsState, "LUDS", strings.Repeat("x", 500)+"z"), []string{
			"high unknown password.strength_unknown: password check \"" + strings.Repeat("x", 119) + "… → \"" + strings.Repeat("x", 119) + "…",
		}},
		{"switch gone", "password_strength_config", ludsState, swap(ludsState, `,"validate_on_authentication":true`, ``), []string{
			"medium unknown password.switch_unknown: validate_on_authentication: `true` → `null`",
		}},

		{"countries", "sms_country_codes", `["DE","US"]`, `["US","KP"]`, []string{
			"medium weaker sms.country_allowed: country `KP` allowed | numbers in `KP` can be texted now",
			"low stronger sms.country_refused: country `DE` no longer allowed | numbers in `DE` can no longer be texted",
		}},
		{"no country", "sms_country_codes", `["DE"]`, `[]`, []string{
			"high stronger sms.lockout: lockout: no country allowed before is left, so nobody who was texted can be | no number that could be texted before can be texted now",
			"low stronger sms.country_refused: country `DE` no longer allowed | numbers in `DE` can no longer be texted",
		}},
		{"country twice", "sms_country_codes", `["DE","DE"]`, `["DE"]`, []string{"info neutral setting.rewritten: the whole setting lost `\"DE\"`"}},

		{"key replaced", "trusted_token_profiles", oneProfile, swap(oneProfile, `"x"`, `"y"`), []string{
			"critical mixed tokens.key_replaced: profile `p-1`: public key `k-2` replaced (SHA-256 2d711642b726b044… → a1fce4363854ff88…) | tokens signed by the key a1fce4363854ff88… are accepted now; tokens signed by the key 2d711642b726b044… are refused now",
		}},
		{"key added", "trusted_token_profiles", oneProfile, swap(oneProfile, `[{"pem_file_id"`, `[{"pem_file_id":"k-3","public_key":"y"},{"pem_file_id"`), []string{
			"critical weaker tokens.key_added: profile `p-1`: public key `k-3` added (SHA-256 a1fce4363854ff88…) | tokens signed by the key a1fce4363854ff88… are accepted now",
		}},
		{"key removed", "trusted_token_profiles", oneProfile, swap(oneProfile, `{"pem_file_id":"k-2","public_key":"x"}`, ``), []string{
			"high stronger tokens.lockout: lockout: no profile accepts any token any more | tokens that were accepted before are refused now, whoever issued them",
			"low stronger tokens.key_removed: profile `p-1`: public key `k-2` removed (SHA-256 2d711642b726b044…) | tokens signed by the key 2d711642b726b044… are refused now",
		}},
		{"second key in one file", "trusted_token_profiles", swap(oneProfile, `"x"`, onePEM), swap(oneProfile, `"x"`, onePEM[:len(onePEM)-1]+onePEM[1:]), []string{
			"critical mixed tokens.key_replaced: profile `p-1`: public key `k-2` replaced (SHA-256 039058c6f2c0cb49… → 4e816d69be61c399…) | tokens signed by the key 4e816d69be61c399… are accepted now; tokens signed by the key 039058c6f2c0cb49… are refused now",
		}},
		{"key with other spaces", "trusted_token_profiles", swap(oneProfile, `"x"`, onePEM), swap(oneProfile, `"x"`, swap(onePEM, `\nAQID\n`, `\r\nAQ\r\nID\r\n`)), []string{
			"info neutral setting.rewritten: `/profile_id=p-1/pem_files/pem_file_id=k-2/public_key` changed; its value is not shown here, as it may be a secret",
		}},
		{"key moved", "trusted_token_profiles", oneProfile, swap(oneProfile, `k-2`, `k-3`), []string{
			"info neutral tokens.key_moved: profile `p-1`: public key `k-2` removed (SHA-256 2d711642b726b044…)",
			"info neutral tokens.key_moved: profile `p-1`: public key `k-3` added (SHA-256 2d711642b726b044…)",
		}},
		{"profile changed", "trusted_token_profiles", oneProfile, swap(oneProfile, `"audience":"a"`, `"audience":"b"`, `"issuer":"i"`, `"issuer":""`, `false`, `true`, `"m"`, `"o"`, `"n"`, `"o"`, `"jwks_url":""`, `"jwks_url":"https://evil.example"`), []string{
			"critical weaker tokens.keys_url_added: profile `p-1`: address of the keys `` → `https://evil.example` | tokens signed by a key at `https://evil.example` are accepted now",
			"high weaker tokens.provisioning_on: profile `p-1`: tokens can create users | a token of an unknown user creates that user now",
			"high mixed tokens.audience_changed: profile `p-1`: audience `a` → `b` | tokens with audience `b` are accepted now; those with `a` are refused now",
			"high unknown tokens.condition_unknown: profile `p-1`: issuer `i` → ``",
			"high unknown tokens.mapping_changed: profile `p-1`: attribute mapping: `m` → `o`",
			"info neutral tokens.renamed: profile `p-1`: name: `n` → `o`",
		}},
		{"issuer and address", "trusted_token_profiles", swap(oneProfile, `"jwks_url":""`, `"jwks_url":"https://a"`, `false`, `true`), swap(oneProfile, `"jwks_url":""`, `"jwks_url":"https://b"`, `"i"`, `"j"`), []string{
			"critical mixed tokens.keys_url_changed: profile `p-1`: address of the keys `https://a` → `https://b` | tokens signed by a key at `https://b` are accepted now; those by a key at `https://a` are refused now",
			"critical mixed tokens.issuer_changed: profile `p-1`: issuer `i` → `j` | tokens with issuer `j` are accepted now; those with `i` are refused now",
			"low stronger tokens.provisioning_off: profile `p-1`: tokens can no longer create users | a token of an unknown user is refused now",
		}},
		{"address removed", "trusted_token_profiles", swap(oneProfile, `"jwks_url":""`, `"jwks_url":"https://a"`), oneProfile, []string{
			"low stronger tokens.keys_url_removed: profile `p-1`: address of the keys `https://a` → `` | those by a key at `https://a` are refused now",
		}},
		{"profile without a key changed", "trusted_token_profiles", swap(oneProfile, `"x"`, `" "`), swap(oneProfile, `"x"`, `""`, `"i"`, `"evil"`, `"a"`, `""`, `false`, `true`, `"m"`, `"o"`), []string{
			"low neutral tokens.profile_idle: profile `p-1`: issuer `i` → `evil`",
			"low neutral tokens.profile_idle: profile `p-1`: audience `a` → ``",
			"low neutral tokens.profile_idle: profile `p-1`: just-in-time provisioning: `false` → `true`",
			"low neutral tokens.profile_idle: profile `p-1`: attribute mapping: `m` → `o`",
		}},
		{"attribute mapping as an object", "trusted_token_profiles", swap(oneProfile, `"m"`, `"{\"email\": \"sub\"}"`), swap(oneProfile, `"m"`, `{"email":"sub"}`), []string{
			"info neutral setting.rewritten: `/profile_id=p-1/attribute_mapping`: `\"{\\\"email\\\": \\\"sub\\\"}\"` → `{\"email\":\"sub\"}`",
		}},
		{"profile added", "trusted_token_profiles", `[]`, oneProfile, []string{
			"critical weaker tokens.profile_added: profile `p-1` added: issuer `i`, audience `a`, 1 key | tokens of issuer `i` are accepted now",
		}},
		{"profile removed", "trusted_token_profiles", oneProfile, `[{"profile_id":"p-2"}]`, []string{
			"high stronger tokens.lockout: lockout: no profile accepts any token any more | tokens that were accepted before are refused now, whoever issued them",
			"low stronger tokens.profile_removed: profile `p-1` removed: issuer `i`, audience `a`, 1 key | tokens of issuer `i` are refused now",
			"low neutral tokens.profile_idle: profile `p-2` added: issuer ``, audience ``, 0 keys",
		}},

		{"log moved", "event_log_streaming", loki, swap(loki, "relay.example.com", "evil.example.com", "abcd", "efgh"), []string{
			"critical weaker streaming.moved: the event log now goes to `evil.example.com`, it went to `relay.example.com` | `evil.example.com` receives the event log now; `relay.example.com` receives no events now",
		}},
		{"log to Datadog, inactive", "event_log_streaming", loki, swap(datadog, "ACTIVE", "DISABLED"), []string{
			"high weaker streaming.inactive: streaming status: `ACTIVE` → `DISABLED` | events from now on are not delivered",
			"high unknown streaming.redirected: the event log now is set to go to `Datadog US`, it went to `relay.example.com`; streaming is `DISABLED`",
		}},
		{"log prepared", "event_log_streaming", ``, swap(loki, "ACTIVE", "DISABLED"), []string{
			"medium unknown streaming.prepared: the event log now is set to go to `relay.example.com`; streaming is `DISABLED`",
		}},
		{"idle log removed", "event_log_streaming", swap(loki, "ACTIVE", "DISABLED"), ``, []string{
			"low neutral streaming.idle_removed: the event log, which went nowhere, is no longer set to go to `relay.example.com`",
		}},
		{"log moved and enabled", "event_log_streaming", swap(loki, "ACTIVE", "DISABLED"), swap(loki, "relay.example.com", "evil.example.com"), []string{
			"critical weaker streaming.moved: the event log now goes to `evil.example.com`, it was set to go to `relay.example.com` | `evil.example.com` receives the event log now",
			"low stronger streaming.active: streaming status: `DISABLED` → `ACTIVE` | events from now on are delivered",
		}},
		{"log stopped", "event_log_streaming", loki, ``, []string{
			"critical weaker streaming.stopped: the event log goes nowhere now, it went to `relay.example.com` | `relay.example.com` receives no events now",
		}},
		{"log started", "event_log_streaming", ``, loki, []string{
			"high mixed streaming.started: the event log now goes to `relay.example.com` | `relay.example.com` receives the event log now",
		}},
		{"other account", "event_log_streaming", loki, swap(loki, `"u"`, `"v"`), []string{
			"high weaker streaming.account_changed: the event log goes to account `v` at `relay.example.com`, it was `u` | account `v` receives the event log now",
		}},
		{"other password", "event_log_streaming", loki, swap(loki, "abcd", "efgh"), []string{
			"low unknown streaming.credential_changed: the event log goes to `relay.example.com` with another credential",
		}},
		{"other key, active", "event_log_streaming", swap(datadog, "ACTIVE", "PENDING"), swap(datadog, "abcd", "efgh"), []string{
			"medium unknown streaming.key_changed: the event log goes to `Datadog US` with another API key, of the same organization or another",
			"low stronger streaming.active: streaming status: `PENDING` → `ACTIVE` | events from now on are delivered",
		}},
		{"status nobody knows", "event_log_streaming", swap(loki, "ACTIVE", "PENDING"), swap(loki, "ACTIVE", "DISABLED"), []string{
			"medium unknown streaming.status_changed: streaming status: `PENDING` → `DISABLED`",
		}},
		{"other type's config", "event_log_streaming", loki, swap(loki, `"grafana_loki"`, `"datadog":{"site":"EU"},"grafana_loki"`), []string{
			"medium unknown setting.changed: `/destination_config` gained `{\"datadog\":{\"site\":\"EU\"}}`",
		}},

		{"mail links elsewhere", "email_templates", oneMail, swap(oneMail, "https://example.com/in", "https:&#47;/u@EVIL.example"), []string{
			"high weaker email.link_added: template `t-1` now links to `evil.example` | a mail can lead to `evil.example` now",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
			"info stronger email.link_removed: no template links to `example.com` any more | a mail can lead to `example.com` no longer",
		}},
		{"mail links elsewhere, in disguise", "email_templates", oneMail, swap(oneMail, "hello", "hello <a href='https:one.example'><a href=\\\"ht\\ntps:/\\t/two.example/\\\"><a href=mailto:help@three.example?subject=1><!--[if mso]>www.four.example<![endif]-->"), []string{
			"high weaker email.link_added: template `t-1` now links to `one.example` | a mail can lead to `one.example` now",
			"high weaker email.link_added: template `t-1` now links to `three.example` | a mail can lead to `three.example` now",
			"high weaker email.link_added: template `t-1` now links to `two.example` | a mail can lead to `two.example` now",
			"high weaker email.link_added: template `t-1` now links to `www.four.example` | a mail can lead to `www.four.example` now",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 2 lines added",
		}},
		{"mail links to another placeholder", "email_templates", oneMail, swap(oneMail, "https://example.com/in", "{{other_url}}"), []string{
			"high weaker email.link_added: template `t-1` now links to `{{other_url}}` | a mail can lead to `{{other_url}}` now",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
			"info stronger email.link_removed: no template links to `example.com` any more | a mail can lead to `example.com` no longer",
		}},
		{"mail without its link", "email_templates", swap(oneMail, "https://example.com/in", "{{ magic_link }}?x=1", "hello", "hello {{name}}"), swap(oneMail, "https://example.com/in", "#", "hello", "hello {{name}}"), []string{
			"high stronger email.lockout: lockout: template `t-1` has lost `{{magic_link}}`, so nobody can go on from this mail | a mail by template `t-1` has no `{{magic_link}}` now",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
			"info stronger email.link_removed: no template links to `{{magic_link}}` any more | a mail can lead to `{{magic_link}}` no longer",
		}},
		{"mail without its code", "email_templates", swap(oneMail, "hello", "hello {{code}}"), oneMail, []string{
			"high stronger email.lockout: lockout: template `t-1` has lost `{{code}}`, so nobody can go on from this mail | a mail by template `t-1` has no `{{code}}` now",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
		}},
		{"mail with its link written otherwise", "email_templates", swap(oneMail, "https://example.com/in", "https://example.com/{{token}}"), swap(oneMail, "https://example.com/in", "https://example.com/in?t={{ token }}"), []string{
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
		}},
		{"mail with an address that nobody can read", "email_templates", oneMail, swap(oneMail, "hello", "hello <a href='javascript:go()'>"), []string{
			"high unknown email.link_unreadable: template `t-1` now has a link that may lead anywhere: `javascript:go()`",
			"low neutral email.content_changed: template `t-1`: html_content changed, 1 line removed and 1 line added",
		}},
		{"mail from the service's domain", "email_templates", oneMail, swap(oneMail, `"from_domain":"example.com"`, `"from_domain":""`), []string{
			"medium unknown email.sender_emptied: template `t-1` names no sender's domain any more, it was `example.com`: the service chooses one",
			"low neutral email.content_changed: template `t-1`: from_domain: `example.com` → ``",
			"info stronger email.sender_removed: no template sends from `example.com` any more | a mail can come from `example.com` no longer",
		}},
		{"mail from elsewhere", "email_templates", oneMail, swap(oneMail, `"example.com"`, `"evil.example"`, `"Us"`, `"Them"`, `#000`, `#fff`), []string{
			"high weaker email.sender_added: template `t-1` now sends from `evil.example` | a mail can come from `evil.example` now",
			"low neutral email.content_changed: template `t-1`: from_domain: `example.com` → `evil.example`",
			"low neutral email.content_changed: template `t-1`: from_name: `Us` → `Them`",
			"info stronger email.sender_removed: no template sends from `example.com` any more | a mail can come from `example.com` no longer",
			"info neutral email.looks_changed: template `t-1`: button_color: `#000` → `#fff`",
		}},
		{"template removed", "email_templates", swap(oneMail, `[{`, `[{"template_id":"t-2","name":"Old"},{`), oneMail, []string{
			"low neutral email.template_changed: template `t-2` (`Old`) removed",
		}},
		{"defaults", "default_email_templates", `{"LOGIN":"t0","SIGNUP":"t0"}`, `{"LOGIN":"t1","SIGNUP":null}`, []string{
			"low neutral email.default_changed: default template of type `LOGIN`: `t0` → `t1`",
			"low neutral email.default_changed: no default template of type `SIGNUP` any more, it was `t0`",
		}},

		{"project", "project", oneProject, swap(oneProject, "Shop", "Hub", "ALL", "B2B"), []string{
			"medium unknown project.identity_changed: project's vertical: `ALL` → `B2B`",
			"info neutral project.renamed: project's name: `Shop` → `Hub`",
		}},
		{"first look", "project", ``, oneProject, []string{"info neutral setting.first_seen: this setting is seen for the first time"}},
		{"there again", "project", `null`, oneProject, []string{"medium unknown setting.back: this setting is there, and was not before; what it permitted then is not known"}},
		{"gone as null", "project", oneProject, `null`, []string{"high unknown setting.gone: this setting is gone"}},
		{"second log", "event_log_streaming_second", `null`, datadog, []string{
			"high mixed streaming.started: the event log now goes to `Datadog US` | `Datadog US` receives the event log now",
		}},
		{"gone", "project", oneProject, ``, []string{"high unknown setting.gone: this setting is gone"}},
		{"relay: an environment less, another more", RelayConfiguration, `{"environments":{"shop/live":{"environment":"live"},"shop/test":{}}}`, `{"environments":{"shop/new":{},"shop/test":{}}}`, []string{
			"high weaker relay.environment_removed: environment `shop/live` was taken out of the relay's configuration | its events are refused now",
			"info stronger relay.environment_added: environment `shop/new` is new in the relay's configuration | its events are taken now",
		}},
		{"relay: the last sink less", RelayConfiguration, `{"sinks":{"soc":{"webhook":{}}}}`, `{}`, []string{
			"high weaker relay.sink_removed: sink `soc` was taken out of the relay's configuration | it receives nothing now",
		}},
		{"relay: a sink more", RelayConfiguration, `{"sinks":{"soc":{}}}`, `{"sinks":{"new":{},"soc":{}}}`, []string{
			"medium mixed relay.sink_added: sink `new` is new in the relay's configuration | it receives events now",
		}},
		{"relay: another witness", RelayConfiguration, `{"audit":{"quorum":1,"witnesses":{"w+1+2":{}}}}`, `{"audit":{"quorum":1,"witnesses":{"w+3+4":{}}}}`, []string{
			"high weaker relay.witness_removed: witness `w+1+2` was taken out of the relay's configuration | it cosigns nothing now",
			"info stronger relay.witness_added: witness `w+3+4` is new in the relay's configuration | it cosigns the trail now",
		}},
		{"relay: a match that drops everything", RelayConfiguration, `{"log":{"level":"info"},"sinks":{"soc":{"name":"soc"}}}`, `{"log":{"level":"warn"},"sinks":{"soc":{"match":{"cel":"false"},"name":"soc"}}}`, []string{
			"high unknown relay.guard_changed: `/sinks/soc/match` gained `{\"cel\":\"false\"}`",
			"low unknown relay.option_changed: `/log/level`: `\"info\"` → `\"warn\"`",
		}},
		{"subject nobody knows", "redirect_urls", `{"a":[1]}`, `{"a":[2]}`, []string{"medium unknown setting.changed: `/a/0`: `1` → `2`"}},
		{"value that may be a secret", "project", `{}`, `{"client_Secret":"hunter2"}`, []string{
			"medium unknown setting.changed: `/client_Secret` changed; its value is not shown here, as it may be a secret",
		}},
		{"another shape", "sms_country_codes", `["DE"]`, `{"codes":["DE"]}`, []string{
			"medium unknown setting.changed: the whole setting: `[]` → `{\"codes\":[\"DE\"]}`",
			"low stronger sms.country_refused: country `DE` no longer allowed | numbers in `DE` can no longer be texted",
		}},
		{"hostile names", "sms_country_codes", `[]`, `["a\u0060b\n\u202e\u0000` + strings.Repeat("x", 1000) + `"]`, []string{
			"medium weaker sms.country_allowed: country `a\\u{60}b\\u{a}\\u{202e}\\u{0}" + strings.Repeat("x", 58) + "…` allowed | numbers in `a\\u{60}b\\u{a}\\u{202e}\\u{0}" + strings.Repeat("x", 58) + "…` can be texted now",
		}},
	} {
		r, err := Read(c.subject, json.RawMessage(c.before), json.RawMessage(c.after))
		require.NoError(t, err, c.name)
		var got []string
		for _, s := range r.Statements {
			got = append(got, told(s))
			met[s.Rule] = true
		}
		assert.Equal(t, c.want, got, c.name)
	}
	for before, want := range map[string]string{
		swap(loki, "relay.example.com", "evil.example.com"): "low stronger streaming.restored: the event log goes to `relay.example.com` again, as before; in between it went to `evil.example.com` | `relay.example.com` receives the event log again",
		swap(loki, `"u"`, `"x"`):                            "low stronger streaming.restored: the event log goes to `relay.example.com` again, as before; in between it went to `relay.example.com` as `x` | `relay.example.com` receives the event log again",
		"null":                                              "low stronger streaming.restored: the event log goes to `relay.example.com` again, as before; in between it went nowhere | `relay.example.com` receives the event log again",
		swap(loki, "abcd", "efgh"):                          "low unknown streaming.credential_changed: the event log goes to `relay.example.com` with another credential",
	} {
		r := explained(t, Restored, "event_log_streaming", before, loki)
		require.Len(t, r.Statements, 1)
		assert.Equal(t, want, told(r.Statements[0]))
		met[r.Statements[0].Rule] = true
	}
	r := explained(t, Restored, "event_log_streaming", datadog, swap(loki, "ACTIVE", "DISABLED"))
	assert.Equal(t, High, r.Severity, "where no events flow, nothing is put right yet")
	r = explained(t, Restored, "event_log_streaming", swap(loki, "relay.example.com", "evil.example.com"), swap(loki, "ACTIVE", "PENDING"))
	assert.Equal(t, []any{Low, Stronger}, []any{r.Severity, r.Direction}, "the provider begins by itself: a rule for weaker changes does not ring again")
	require.Len(t, r.Statements, 1)
	assert.Equal(t, "low stronger streaming.restored: the event log is set to go to `relay.example.com` again, as before; in between it went to `evil.example.com`; streaming is `PENDING`", told(r.Statements[0]))
	r = explained(t, Returned, "sms_country_codes", `[]`, `["KP"]`)
	require.Equal(t, "country `KP` allowed, and 1 more change", r.Summary)
	require.Equal(t, Weaker, r.Direction)
	met[r.Statements[1].Rule] = true
	for _, rule := range rules {
		if strings.HasPrefix(rule.ID, "action.") {
			continue // see TestActions
		}
		assert.Truef(t, met[rule.ID], "no sentence in this table shows the rule %s", rule.ID)
	}
}

// explained is the reading of a change that came about in a known way.
func explained(t *testing.T, how How, subject, before, after string) Reading {
	t.Helper()
	a, err := jsontext.Read(json.RawMessage(before))
	require.NoError(t, err)
	b, err := jsontext.Read(json.RawMessage(after))
	require.NoError(t, err)
	r, err := Compare(subject, a, b).Explain(how)
	require.NoError(t, err)
	return r
}

func TestSummary(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]string{
		`[]`:               "",
		`["KP"]`:           "country `KP` allowed",
		`["KP","IR"]`:      "country `IR` allowed, and 1 more change",
		`["KP","IR","CU"]`: "country `CU` allowed, and 2 more changes",
	} {
		r, err := Read("sms_country_codes", json.RawMessage(`[]`), json.RawMessage(after))
		require.NoError(t, err)
		require.Equal(t, want, r.Summary)
	}
}

func TestDirections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		want          Direction
		severity      Severity
	}{
		{`[]`, `[]`, Neutral, Info},
		{`[]`, `["DE"]`, Weaker, Medium},
		{`["DE"]`, `[]`, Stronger, High},
		{`["DE","FR"]`, `["FR"]`, Stronger, Low},
		{`["DE"]`, `["US"]`, Mixed, High}, // whoever was texted is locked out
		{`["DE","FR"]`, `["US","FR"]`, Mixed, Medium},
		{`["DE"]`, `["DE",1]`, Unknown, Medium},
		{`["DE"]`, `[1]`, Unknown, Medium}, // a stronger part may be undone by an unknown one
		{`[]`, `["DE",1]`, Weaker, Medium},
	} {
		r, err := Read("sms_country_codes", json.RawMessage(c.before), json.RawMessage(c.after))
		require.NoError(t, err)
		require.Equal(t, c.want, r.Direction, "%s to %s", c.before, c.after)
		require.Equal(t, c.severity, r.Severity, "%s to %s", c.before, c.after)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	r, err := Read("sms_country_codes", json.RawMessage(`["DE"]`), json.RawMessage(`["DE","KP"]`))
	require.NoError(t, err)
	got, err := json.Marshal(r)
	require.NoError(t, err)
	require.Equal(t, `{"summary":"country `+"`KP`"+` allowed","direction":"weaker","severity":"medium","statements":[`+
		`{"sentence":"country `+"`KP`"+` allowed","path":"","direction":"weaker","severity":"medium","rule":"sms.country_allowed",`+
		`"witness":"numbers in `+"`KP`"+` can be texted now","new":"KP"}]}`, string(got))
	_, err = Read("sms_country_codes", json.RawMessage(`[`), nil)
	require.ErrorContains(t, err, "read the state before")
}

// TestActions judges a person's actions by what they may break or open.
func TestActions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, detail string
		severity     Severity
		direction    Direction
	}{
		{"action.intended", `{"operation":"secret.delete"}`, Low, Neutral},
		{"action.ended", `{"operation":"secret.delete","outcome":"done"}`, High, Stronger},
		{"action.ended", `{"operation":"secret.delete","outcome":"unknown"}`, High, Stronger},
		{"action.ended", `{"operation":"secret.delete","outcome":"refused"}`, Low, Neutral},
		{"action.ended", `{"operation":"public_token.delete","outcome":"done"}`, High, Stronger},
		{"action.ended", `{"operation":"redirect_urls.set_types","arguments":{"url":"https://a","types":"LOGIN"},"outcome":"done"}`, High, Unknown},
		{"action.ended", `{"operation":"redirect_urls.set_types","arguments":{"url":"https://a","default_types":"LOGIN"},"outcome":"done"}`, High, Unknown},
		{"action.ended", `{"operation":"redirect_urls.set_types","arguments":{"url":"https://a","types":" , "},"outcome":"done"}`, Medium, Stronger},
		{"action.ended", `{"operation":"project.rename","outcome":"done"}`, Low, Neutral},
		{"action.ended", `7`, Low, Neutral},
	} {
		_, severity := OfEntry(c.kind, "x", json.RawMessage(c.detail))
		require.Equal(t, []any{c.severity, c.direction}, []any{severity, OfAction(c.kind, json.RawMessage(c.detail))}, "%s %s", c.kind, c.detail)
	}
}
