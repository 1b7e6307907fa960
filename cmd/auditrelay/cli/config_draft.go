package cli

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"text/template"
)

// draft is a configuration by the answers so far. A part without an answer is written as a field
// without a value, which the checks refuse if it is required.
type draft struct {
	DataDir, BaseURL, KeyID, Secret string
	Environments                    []draftEnvironment
	Host                            string // "" to watch only
	Listen, CertFile, KeyFile       string // of ingest
	Proxy                           bool   // ends TLS
	Console                         string
	Sinks                           []*draftSink
}

type draftEnvironment struct{ Project, Environment string }

type draftSink struct {
	Name, Kind string
	Fields     []*draftField
}

type draftField struct {
	Name, Value string
	List        bool // commas separate several values
}

var draftText = template.Must(template.New("").Funcs(template.FuncMap{"yaml": quoted}).Parse(`# yaml-language-server: $schema=` + schemaFile + `
# 'auditrelay config init --non-interactive' explains every field that there is.
data_dir: {{yaml .DataDir}}
workspace:
  base_url: {{yaml .BaseURL}}
  key_id: {{yaml .KeyID}}
  secret: {{yaml .Secret}}
environments:
{{- range .Environments}}
  - project: {{yaml .Project}}
    environment: {{yaml .Environment}}
{{- if $.Host}}
    stream:
      relay: {hostname: {{yaml $.Host}}}
{{- end}}{{end}}
{{- if .Listen}}
ingest:
  listen: {{yaml .Listen}}
{{- if .CertFile}}
  tls:
    cert_file: {{yaml .CertFile}}
    key_file: {{yaml .KeyFile}}
{{- else if .Proxy}}
  behind_proxy: true
{{- end}}{{end}}
{{- if .Console}}
console:
  listen: {{yaml .Console}}
{{- end}}
sinks:
{{- range .Sinks}}
  - name: {{yaml .Name}}
    {{.Kind}}:
{{- range .Fields}}
      {{.Name}}: {{.YAML}}
{{- end}}{{end}}
`))

// YAML is the field's value.
func (f *draftField) YAML() string {
	if !f.List {
		return quoted(f.Value)
	}
	var all []string
	for value := range strings.SplitSeq(f.Value, ",") {
		all = append(all, quoted(strings.TrimSpace(value)))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func (d *draft) text() []byte {
	var b bytes.Buffer
	_ = draftText.Execute(&b, d) // all its parts are texts
	return b.Bytes()
}

// plainScalar is a text that YAML reads as itself.
var plainScalar = regexp.MustCompile(`^[A-Za-z/.$][A-Za-z0-9/._${}-]*(:[A-Za-z0-9/._${}-]+)*$`)

// yamlWords are those that YAML reads as something else.
var yamlWords = regexp.MustCompile(`(?i)^(true|false|null|yes|no|on|off|y|n|\.inf|\.nan)$`)

// quoted writes a text as YAML. A JSON string is one, too.
func quoted(text string) string {
	if text == "" || plainScalar.MatchString(text) && !yamlWords.MatchString(text) {
		return text
	}
	quoted, _ := json.Marshal(text) // a text always can be
	return string(quoted)
}
