package datadog

import (
	"context"
	"errors"
	"net/url"

	"github.com/DataDog/datadog-api-client-go/v2/api/datadog"

	"github.com/auditrelay/auditrelay/config"
)

// target is where requests go.
type target struct {
	url *url.URL // of the intake
	api string   // the address of the site's API; empty for a custom intake
}

func targetOf(cfg config.Datadog) (target, error) {
	if cfg.URL == "" {
		return target{&url.URL{Scheme: "https", Host: "http-intake.logs." + cfg.Site}, "https://api." + cfg.Site}, nil
	}
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return target{}, errors.New("url: it is not an address") // the error may hold a password
	}
	return target{url: u}, nil
}

// The index in the client's list of servers for an operation: the second one,
// {protocol}://{name}, serves any site, even one that the client does not know.
const namedServer = 1

// apiKeyAuth is the client's name for authentication by API key.
const apiKeyAuth = "apiKeyAuth"

// context adds the client's values to ctx.
func (t target) context(ctx context.Context, key string) context.Context {
	ctx = context.WithValue(ctx, datadog.ContextServerIndex, namedServer)
	ctx = context.WithValue(ctx, datadog.ContextServerVariables, map[string]string{"protocol": t.url.Scheme, "name": t.url.Host})
	return context.WithValue(ctx, datadog.ContextAPIKeys, map[string]datadog.APIKey{apiKeyAuth: {Key: key}})
}
