// Command coredns is the cluster's name server: CoreDNS' own server with the
// plugins that the cluster's Corefile uses, and no other. Upstream's program links
// the libraries of three clouds, which would be a fifth of the whole build.
//
// A directive in the Corefile (internal/render/dns.yaml) needs its import here;
// the test holds the two together. Their order does not matter: CoreDNS has one
// of its own, by which requests pass through the plugins.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	coremain.Run()
}
