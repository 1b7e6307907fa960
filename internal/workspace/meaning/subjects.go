package meaning

import (
	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// subject is how the states of one subject are read. One without a row here is compared value by
// value, and whatever changes in it has the rule "setting.changed".
type subject struct {
	// schema marks the lists whose order does not count, by "Resources and their fields" of the
	// API's document. Members of the RBAC policy with the provider's brand in their names are
	// known by their ends.
	schema *jsondiff.Schema
	// shape is the form understood by explain; the rest is compared value by value. It may depend
	// on the state.
	shape func(v any) *shape
	// explain adds statements for two states. They may have any form.
	explain func(c *collector, before, after any)
	// rules are those of explain's statements.
	rules []Rule
	// optional: no state is a state like others, and not an unseen one.
	optional bool
}

// streaming is the reading of a config of the event log. Without one, the event log goes nowhere.
var streaming = subject{shape: streamingShape, explain: explainStreaming, rules: streamingRules, optional: true}

// subjects are those with rules, as they stand in the trail.
var subjects = map[string]subject{
	kinds.Project.Name:               {shape: fixed(projectShape), explain: explainProject, rules: projectRules},
	kinds.EmailTemplates.Name:        {schema: &jsondiff.Schema{Key: "template_id"}, shape: fixed(templatesShape), explain: explainTemplates, rules: templateRules},
	kinds.DefaultEmailTemplates.Name: {shape: anyMember, explain: explainDefaults, rules: defaultRules},
	kinds.RBACPolicy.Name:            {schema: rbacSchema(), shape: rbacShape, explain: explainRBAC, rules: rbacRules},
	kinds.TrustedTokenProfiles.Name:  {schema: profilesSchema, shape: fixed(profilesShape), explain: explainProfiles, rules: profileRules},
	kinds.PasswordStrength.Name:      {shape: fixed(passwordShape), explain: explainPassword, rules: passwordRules},
	kinds.SMSCountryCodes.Name:       {schema: &jsondiff.Schema{Set: true}, shape: fixed(list(text)), explain: explainCountries, rules: countryRules},
	"event_log_streaming":            streaming,
	"event_log_streaming_second":     streaming,
	// Everything in it is explained.
	RelayConfiguration: {shape: fixed(anything), explain: explainRelay, rules: relayRules},
}

func fixed(s *shape) func(any) *shape { return func(any) *shape { return s } }
