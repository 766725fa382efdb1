// Package environ decides the environment of a cluster's processes. They outlive their user's shell, so they get
// only the variables that they need. It must start nothing.
package environ

import (
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/prerequisites"
)

var proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}

var exceptions = []string{"NO_PROXY", "no_proxy"}

// trust are the variables for additional certificates. Registries need them behind a proxy that
// terminates TLS.
var trust = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// home is root's, whoever calls `up`: the kubelet looks there for credentials of registries.
const home = "/root"

// Of returns the environment of a cluster's processes, given their parent's. It is idempotent.
func Of(c layout.Cluster, parent []string) []string {
	values := parse(parent)
	env := []string{"HOME=" + home, "PATH=" + path(values["PATH"])}
	for _, name := range trust {
		if values[name] != "" {
			env = append(env, name+"="+values[name])
		}
	}
	proxied := false
	for _, name := range proxies {
		if values[name] != "" {
			env = append(env, name+"="+values[name])
			proxied = true
		}
	}
	if proxied {
		direct := Direct(c, parent)
		for _, name := range exceptions {
			env = append(env, name+"="+direct)
		}
	}
	return env
}

// Direct returns NO_PROXY: the parent's exceptions and the whole cluster.
func Direct(c layout.Cluster, parent []string) string {
	values := parse(parent)
	var hosts []string
	for _, name := range exceptions {
		hosts = append(hosts, strings.Split(values[name], ",")...)
	}
	hosts = append(hosts, "localhost", "127.0.0.1", c.Subnet().String(), ".svc", ".cluster.local")
	hosts = append(hosts, c.Nodes...)
	var all []string
	for _, host := range hosts {
		if host = strings.TrimSpace(host); host != "" && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return strings.Join(all, ",")
}

// The processes have another working folder: relative folders are dropped.
func path(of string) string {
	folders := slices.DeleteFunc(filepath.SplitList(of), func(f string) bool { return !filepath.IsAbs(f) })
	for _, folder := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	return prerequisites.CompletePath(strings.Join(folders, string(filepath.ListSeparator)))
}

func parse(env []string) map[string]string {
	values := map[string]string{}
	for _, variable := range env {
		if name, value, ok := strings.Cut(variable, "="); ok {
			values[name] = value
		}
	}
	return values
}
