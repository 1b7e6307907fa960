package datadog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/config"
)

// target is where requests go.
type target struct {
	scheme, host string // of the intake
	api          string // the address of the site's API; empty for a custom intake
}

func targetOf(cfg config.Datadog) (target, error) {
	if cfg.URL == "" {
		site := cmp.Or(cfg.Site, "datadoghq.com")
		if u, err := url.Parse("https://" + site); err != nil || u.Host != site || u.Port() != "" {
			return target{}, fmt.Errorf("site: %q is not a site's name, such as datadoghq.eu", site)
		}
		return target{scheme: "https", host: "http-intake.logs." + site, api: "https://api." + site}, nil
	}
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.User != nil: // the error may hold a password
		return target{}, errors.New("url: it is no address, or holds a user and password")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		return target{}, fmt.Errorf("url: %q is not https://HOST or https://HOST:PORT, without a path", cfg.URL)
	}
	return target{scheme: u.Scheme, host: u.Host}, nil
}

// The client's list of servers for an operation: the second one is
// {protocol}://{name}, which serves any site, also one that it does not know.
const namedServer = 1

// apiKeyAuth is the client's name for authentication by API key.
const apiKeyAuth = "apiKeyAuth"

// context adds to ctx what the client takes from it.
func (t target) context(ctx context.Context, key string) context.Context {
	ctx = context.WithValue(ctx, datadog.ContextServerIndex, namedServer)
	ctx = context.WithValue(ctx, datadog.ContextServerVariables, map[string]string{"protocol": t.scheme, "name": t.host})
	return context.WithValue(ctx, datadog.ContextAPIKeys, map[string]datadog.APIKey{apiKeyAuth: {Key: key}})
}
