package meaning

// Rule gives a kind of statement its direction and severity.
type Rule struct {
	ID        string
	Direction Direction
	Severity  Severity
	// Means says what happened, and Reason justifies the severity.
	Means, Reason string
}

func ruleOf(id string) Rule { return rulesByID[id] }

var rulesByID = func() map[string]Rule {
	m := map[string]Rule{}
	for _, r := range rules {
		m[r.ID] = r
	}
	return m
}()

var rules = []Rule{
	{"setting.changed", Unknown, Medium, "A value changed that no rule knows.", "A person has to judge it."},
	{"setting.rewritten", Neutral, Info, "A setting is written differently and means the same.", "It permits the same."},
	{"setting.first_seen", Neutral, Info, "A setting is seen for the first time.", "Nothing is known to have changed."},
	{"setting.back", Unknown, Medium, "A setting is there that was not there before.", "It may permit more than it did before it went."},
	{"setting.returned", Neutral, Info, "A setting is there again.", "What differs from the state before it went is told by statements of its own."},
	{"setting.gone", Unknown, High, "A setting is gone, for example with its environment.", "The environment may be gone, or hidden from the relay."},

	{"project.renamed", Neutral, Info, "A project has another name.", "A name permits nothing."},
	{"project.identity_changed", Unknown, Medium, "A project's slug, vertical or creation time changed.", "These do not change in normal use; the project may have been replaced."},

	{"rbac.default_role_gained", Weaker, High, "A default role permits an action that it did not.", "Default roles are held without being assigned one by one, so many gain the action at once."},
	{"rbac.wildcard_gained", Weaker, High, "A role or scope gained the wildcard `*` on a resource.", "It includes every action that the resource gets later."},
	{"rbac.role_gained", Weaker, Medium, "A custom role permits an action that it did not.", "All who have the role can do more."},
	{"rbac.scope_gained", Weaker, Medium, "A scope permits an action that it did not.", "Applications with the scope can do more."},
	{"rbac.lockout", Stronger, High, "A default role lost its last certain permissions.", "Its holders, administrators among them, are locked out, perhaps by an attacker."},
	{"rbac.lockout_perhaps", Unknown, High, "All certain permissions of a default role count only perhaps now.", "Its holders, administrators among them, may be locked out, perhaps by an attacker."},
	{"rbac.uncertain", Unknown, Medium, "A role or scope keeps a permission for an action that no list has any more.", "Whether the service still grants it is not documented: it may only look taken away."},
	{"rbac.perhaps_lost", Unknown, Low, "A permission went that counted only perhaps.", "Nothing new is permitted; whether less is, is not documented."},
	{"rbac.lost", Stronger, Low, "A role or scope no longer permits an action.", "Less is permitted; someone may be locked out."},
	{"rbac.undefined_resource", Unknown, Medium, "A permission came on a resource that no list defines.", "The service may know resources that the policy does not list."},
	{"rbac.unlisted_action", Unknown, Medium, "A role or scope gained an action that its resource does not list.", "Whether the service holds actions against the list is not documented."},
	{"rbac.wildcard_resource", Unknown, High, "A permission came on the resource `*`.", "The service may take it for every resource."},
	{"rbac.wildcard_named", Unknown, Low, "The wildcard `*` took the place of all actions of a resource.", "It permits the same of the list, every action listed later, and perhaps some that are never listed."},
	{"rbac.wildcard_spelled_out", Unknown, Low, "All actions of a resource took the place of the wildcard `*`.", "They permit the same of the list, and perhaps less beyond it."},
	{"rbac.no_effect", Neutral, Info, "Permissions are written differently.", "They permit the same."},
	{"rbac.holder_changed", Neutral, Info, "A role or scope was added, removed or described anew.", "What it permits is told by statements of their own."},
	{"rbac.resource_changed", Neutral, Info, "A resource was added, removed or described anew, or lists other actions.", "What roles gain by it is told by statements of their own."},

	{"password.strength_weaker", Weaker, High, "Passwords are accepted that were too weak before.", "Weak passwords are guessed."},
	{"password.strength_stronger", Stronger, Low, "Weak passwords are refused that were accepted before.", "Less is permitted."},
	{"password.strength_mixed", Mixed, Medium, "Random passwords are accepted that were refused before, and weak ones are refused.", "Random passwords are hard to guess."},
	{"password.strength_traded", Mixed, High, "Weak passwords are accepted that were refused before, and others are refused.", "Raising one demand does not make up for lowering another."},
	{"password.strength_unknown", Unknown, High, "The check of strength changed to or from one that no rule knows.", "It may accept anything."},
	{"password.no_effect", Neutral, Info, "A number changed that is not in force, or makes no difference.", "The same passwords are accepted."},
	{"password.lockout", Stronger, High, "No password meets the rules: LUDS knows four classes of characters, and nobody has a password of more than 128 characters.", "Users and administrators are locked out, perhaps by an attacker."},
	{"password.breach_check_off", Weaker, High, "Passwords known from breaches are accepted.", "Attackers try such passwords first."},
	{"password.breach_check_on", Stronger, Low, "Passwords known from breaches are refused.", "Less is permitted."},
	{"password.validation_off", Weaker, Medium, "Existing passwords are no longer held against the check of strength at log-in.", "Old weak passwords stay in use."},
	{"password.validation_on", Stronger, Low, "Existing passwords are held against the check of strength at log-in.", "Less is permitted."},
	{"password.switch_unknown", Unknown, Medium, "A switch is neither true nor false.", "What the service makes of it is not known."},

	{"sms.country_allowed", Weaker, Medium, "Numbers of another country can be texted.", "Texts to more countries cost money, and some are known for fraud."},
	{"sms.country_refused", Stronger, Low, "Numbers of a country can no longer be texted.", "Less is permitted; users there may be locked out."},
	{"sms.lockout", Stronger, High, "None of the countries is left that could be texted before.", "All users who log in by SMS are locked out, perhaps by an attacker."},

	{"tokens.profile_added", Weaker, Critical, "Tokens of another issuer are accepted.", "Who holds the issuer's key can log in as any user."},
	{"tokens.lockout", Stronger, High, "No profile accepts any token any more: the last profile or the last key is gone.", "All who log in with trusted tokens are locked out, perhaps by an attacker."},
	{"tokens.profile_removed", Stronger, Low, "Tokens of an issuer are no longer accepted.", "Less is permitted: its users may be locked out, while those of other issuers still log in."},
	{"tokens.profile_idle", Neutral, Low, "A profile without any key was added, removed or changed.", "It accepts nothing until it has a key."},
	{"tokens.key_added", Weaker, Critical, "Tokens signed by another key are accepted.", "Who holds the key can log in as any user."},
	{"tokens.key_removed", Stronger, Low, "Tokens signed by a key are no longer accepted.", "Less is permitted."},
	{"tokens.key_replaced", Mixed, Critical, "Tokens signed by another key are accepted, in place of the old one.", "A planned rotation looks the same as a takeover."},
	{"tokens.key_moved", Neutral, Info, "A key has another id.", "The same tokens are accepted."},
	{"tokens.keys_url_added", Weaker, Critical, "Keys are taken from an address.", "Who controls the address can log in as any user."},
	{"tokens.keys_url_removed", Stronger, Low, "Keys are no longer taken from an address.", "Less is permitted."},
	{"tokens.keys_url_changed", Mixed, Critical, "Keys are taken from another address.", "Who controls the address can log in as any user."},
	{"tokens.issuer_changed", Mixed, Critical, "Tokens of another issuer are accepted, in place of the old one.", "The issuer vouches for every user."},
	{"tokens.audience_changed", Mixed, High, "Tokens for another audience are accepted, in place of the old one.", "Tokens made for another application may log in here."},
	{"tokens.condition_unknown", Unknown, High, "An issuer or audience was set where there was none, or emptied.", "An empty one may mean that all are accepted."},
	{"tokens.provisioning_on", Weaker, High, "Tokens can create users.", "An issuer can bring in new users unasked."},
	{"tokens.provisioning_off", Stronger, Low, "Tokens can no longer create users.", "Less is permitted."},
	{"tokens.mapping_changed", Unknown, High, "The mapping of attributes, or the type of keys, changed.", "A mapping can make a token someone else's; no rule reads it."},
	{"tokens.renamed", Neutral, Info, "A profile has another name.", "The same tokens are accepted."},

	{"streaming.moved", Weaker, Critical, "The event log goes elsewhere.", "The new place sees every event, and the old one none."},
	{"streaming.stopped", Weaker, Critical, "The event log goes nowhere.", "Nobody sees what happens."},
	{"streaming.started", Mixed, High, "The event log goes to a place where there was none.", "Events are watched, and the place sees every one."},
	{"streaming.restored", Stronger, Low, "The relay put back the destination that had stood before.", "The change that it mends has an entry of its own, with its own severity."},
	{"streaming.redirected", Unknown, High, "The event log is set to go elsewhere, and streaming is disabled.", "Nothing goes there yet; once streaming is enabled, the new place sees every event."},
	{"streaming.prepared", Unknown, Medium, "The event log is set to go to a place where there was none, and streaming is disabled.", "Nothing goes there yet; once streaming is enabled, the place sees every event."},
	{"streaming.idle_removed", Neutral, Low, "A destination was removed while streaming was disabled.", "No event went there."},
	{"streaming.account_changed", Weaker, High, "The event log goes to another account at the same place.", "Another tenant may see every event, and the old one none."},
	{"streaming.credential_changed", Unknown, Low, "The event log is delivered with another password.", "Rotations look like this."},
	{"streaming.key_changed", Unknown, Medium, "The event log is delivered with another Datadog API key.", "Rotations look like this; so does another organization's key, which would see every event."},
	{"streaming.inactive", Weaker, High, "Streaming is not active any more.", "Events of the time without streaming are never delivered."},
	{"streaming.active", Stronger, Low, "Streaming is active again.", "Events are seen again."},
	{"streaming.status_changed", Unknown, Medium, "The status changed between two that are not active.", "What they mean is not documented."},

	{"relay.environment_removed", Weaker, High, "An environment was taken out of the relay's configuration.", "Its event log is refused here, and its settings are watched no more."},
	{"relay.environment_added", Stronger, Info, "An environment is new in the relay's configuration.", "More is watched."},
	{"relay.sink_removed", Weaker, High, "A sink was taken out of the relay's configuration.", "Its receiver gets neither events nor this trail any more."},
	{"relay.sink_added", Mixed, Medium, "A sink is new in the relay's configuration.", "Somebody else receives the events."},
	{"relay.witness_removed", Weaker, High, "A witness was taken out of the relay's configuration.", "A trail that is put back is found from fewer places."},
	{"relay.witness_added", Stronger, Info, "A witness is new in the relay's configuration.", "A trail that is put back is found from more places."},
	{"relay.guard_changed", Unknown, High, "The relay's configuration changed in a part that decides what is watched, delivered or recorded.", "A filter can keep events from a sink, and a switch can end the watch."},
	{"relay.option_changed", Unknown, Low, "The relay's configuration changed in another part.", "It says how the relay works, and not what it watches."},

	{"email.link_added", Weaker, High, "Mail links to a host that no template linked to before.", "Mail of the project can lead its readers there."},
	{"email.link_unreadable", Unknown, High, "Mail has a new link that cannot be read, that a placeholder decides, or that leads to no host.", "Mail programs may take its readers anywhere."},
	{"email.link_removed", Stronger, Info, "No template links to a host any more.", "Less is permitted."},
	{"email.sender_added", Weaker, High, "Mail comes from a domain that no template used before.", "Its readers trust mail of the project."},
	{"email.sender_removed", Stronger, Info, "No template sends from a domain any more.", "Less is permitted."},
	{"email.sender_emptied", Unknown, Medium, "A template names no sender's domain any more.", "The service chooses one, and the document does not say which."},
	{"email.content_changed", Neutral, Low, "The text of a template changed, or who it says it is from.", "Links and sender's domains have statements of their own."},
	{"email.looks_changed", Neutral, Info, "A template has another name or look.", "Its text is the same."},
	{"email.template_changed", Neutral, Low, "A template was added or removed.", "Links and sender's domains have statements of their own."},
	{"email.default_changed", Neutral, Low, "Another template is the default of its type, or none is.", "Users get another mail; templates are watched themselves."},

	{"action.routine", Neutral, Low, "A person's action whose effect is in the entry of a setting, or none.", "The setting's entry says what it means."},
	{"action.refused", Neutral, Low, "The API refused a person's action.", "Nothing changed."},
	{"action.credential_deleted", Stronger, High, "A person deleted a secret or a public token, or may have.", "Whoever uses it is locked out, and no setting shows it: this entry is its only trace."},
	{"action.redirect_opened", Unknown, High, "A person set the uses of a redirect URL, or may have.", "Log-ins may be sent there, and others no longer; the API does not show what was before: this entry is its only trace."},
	{"action.redirect_closed", Stronger, Medium, "A person left a redirect URL without any use, or may have.", "Log-ins that return there fail; this entry is its only trace."},
}
