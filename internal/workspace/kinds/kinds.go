// Package kinds is the table of the settings that the relay watches. One row declares a kind: the
// configuration, the client of the API, the watcher and the commands all range over [All], so that
// a further kind is a row here, its rules in internal/workspace/meaning if its changes are to be
// explained and not only compared value by value, and the help of its command if it has one.
package kinds

// The paths of the Workspace Management API that lead to a project and to an environment. Their
// parameters are written as :name.
const (
	ProjectPath     = "/pwa/v3/projects/:project_slug"
	EnvironmentPath = ProjectPath + "/environments/:environment_slug"
)

// Setting is a kind of setting that the API can show.
type Setting struct {
	// Name is the subject of the setting's entries in the trail, and its name in the
	// configuration's settings.intervals.
	Name string
	// Operation is a verb phrase for the operation that reads it, in errors and metrics.
	Operation string
	// Path is the operation's address, and Field is the member of its answer with the setting.
	Path, Field string
	// OfProject: each project has one such setting. Otherwise each environment has one.
	OfProject bool
	// Each are the values of the path's last parameter. The setting consists of what is read for
	// all of them. It is nil for a setting that is read with one request.
	Each []string
	// Self is the member that repeats the project's slug; empty for none. An answer about another
	// project is not believed.
	Self string
	// Shape is what a believable answer looks like, for each request.
	Shape Shape
	// Undo tells a person how to put the setting back to an earlier state.
	Undo string
	// Command is the operation of the command that shows it, as "rbac.get" is that of
	// `auditrelay workspace rbac get`. It is empty for a setting that has commands to change it as
	// well: their operations are written out in internal/workspace.
	Command string
}

// Shape describes a believable state, by the API's document.
type Shape struct {
	Opens  byte            // how its JSON begins: '{', '[' or '"'
	Fields map[string]byte // members, with how their JSON begins; all of them must be there
	// Lists are members that are lists of objects, by their names. Branded are members by the
	// end of their names, before which the service has its own brand, with how their JSON
	// begins. All of these may be null or left out, but not all of them at once.
	Lists   []string
	Branded map[string]byte
	Elem    byte   // how each element of an array begins
	Key     string // the member with an element's name: each has one; empty: elements have none
}

// Called is what a JSON value is called whose text begins with a byte.
func Called(opens byte) string {
	switch opens {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	}
	return "neither an object, nor an array, nor a string"
}

// inTheDashboard is the way back for everything that the API can only read.
const inTheDashboard = "the API has no operation that sets it: put it back in the dashboard"

// The kinds, by the numbers of their operations in the API's document.
var (
	// EmailTemplates are all templates of a project (operation 5).
	EmailTemplates = Setting{
		Name: "email_templates", Operation: "read email templates",
		Path: ProjectPath + "/email_templates", Field: "email_templates", OfProject: true,
		Shape: Shape{Opens: '[', Elem: '{', Key: "template_id"}, Undo: inTheDashboard,
	}
	// DefaultEmailTemplates are the ids of the default templates, by type (operation 6).
	DefaultEmailTemplates = Setting{
		Name: "default_email_templates", Operation: "read default email template",
		Path: ProjectPath + "/default_email_templates/:email_template_type", Field: "template_id", OfProject: true,
		Each: []string{
			"LOGIN", "SIGNUP", "INVITE", "RESET_PASSWORD", "ONE_TIME_PASSCODE", "ONE_TIME_PASSCODE_SIGNUP",
			"VERIFY_EMAIL_PASSWORD_RESET", "UNLOCK", "PREBUILT",
		},
		Shape: Shape{Opens: '"'},
		Undo:  "the API can unset a default template, and has no operation that sets one: put it back in the dashboard",
	}
	// Project is a project (operation 1).
	Project = Setting{
		Name: "project", Operation: "read project", Path: ProjectPath, Field: "project", OfProject: true, Self: "project_slug",
		Shape: Shape{Opens: '{', Fields: map[string]byte{"project_slug": '"', "name": '"'}},
		Undo:  "'auditrelay workspace project rename' sets the name; the API has no operation for the rest",
	}
	// RBACPolicy is the policy of an environment (operation 4).
	RBACPolicy = Setting{
		Name: "rbac_policy", Operation: "read rbac policy", Path: EnvironmentPath + "/rbac_policy", Field: "policy",
		Shape: Shape{
			Opens: '{', Lists: []string{"custom_roles", "custom_resources", "custom_scopes"},
			Branded: map[string]byte{"_resources": '[', "_member": '{', "_admin": '{', "_user": '{'},
		},
		Undo:    inTheDashboard,
		Command: "rbac.get",
	}
	// TrustedTokenProfiles are all profiles of an environment (operation 8).
	TrustedTokenProfiles = Setting{
		Name: "trusted_token_profiles", Operation: "read trusted token profiles",
		Path: EnvironmentPath + "/trusted_token_profiles", Field: "profiles",
		Shape: Shape{Opens: '[', Elem: '{', Key: "profile_id"}, Undo: inTheDashboard,
		Command: "token_profiles.list",
	}
	// PasswordStrength are the rules for passwords of an environment (operation 9).
	PasswordStrength = Setting{
		Name: "password_strength_config", Operation: "read password strength config",
		Path: EnvironmentPath + "/password_strength_config", Field: "password_strength_config",
		Shape: Shape{Opens: '{', Fields: map[string]byte{"validation_policy": '"'}}, Undo: inTheDashboard,
		Command: "password_config.get",
	}
	// SMSCountryCodes are the countries that an environment sends SMS to (operation 10).
	SMSCountryCodes = Setting{
		Name: "sms_country_codes", Operation: "read sms country codes",
		Path: EnvironmentPath + "/allowed_country_codes/sms", Field: "country_codes",
		Shape: Shape{Opens: '[', Elem: '"'}, Undo: inTheDashboard,
		Command: "country_codes.get",
	}
)

// All are the kinds, in the order in which they are read. A project comes after its default
// templates: a read of the project that confirms their absence is the look at the project, too.
func All() []Setting {
	return []Setting{EmailTemplates, DefaultEmailTemplates, Project, RBACPolicy, TrustedTokenProfiles, PasswordStrength, SMSCountryCodes}
}

// Of are the kinds that each project has, or each environment.
func Of(project bool) (some []Setting) {
	for _, s := range All() {
		if s.OfProject == project {
			some = append(some, s)
		}
	}
	return some
}

// Requests is the number of requests of one look.
func (s Setting) Requests() int { return max(1, len(s.Each)) }
