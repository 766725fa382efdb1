// Command coredns is the cluster's DNS server: CoreDNS with only the plugins of the cluster's Corefile.
// Upstream's program links the libraries of three clouds, a fifth of the whole build.
//
// Each directive in the Corefile (internal/render/dns.yaml) needs its import here, which a test checks. The order
// does not matter: CoreDNS has its own.
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
