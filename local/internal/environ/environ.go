// Package environ decides which environment the processes of a cluster get. They
// live longer than the shell of the user who happened to start them, so that they
// get no more of its environment than they need (decision 227). It starts nothing.
package environ

import (
	"path/filepath"
	"slices"
	"strings"

	"drydock.dev/local/internal/layout"
	"drydock.dev/local/internal/prerequisites"
)

// proxies are the variables that lead connections through a proxy.
var proxies = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}

// exceptions are the variables that name what is reached without one.
var exceptions = []string{"NO_PROXY", "no_proxy"}

// trust are the variables that name certificates beside the system's: behind a proxy
// that opens connections, registries are reached with them only.
var trust = []string{"SSL_CERT_FILE", "SSL_CERT_DIR"}

// home is root's, whoever's environment `up` is started with: the kubelet looks there
// for credentials of registries.
const home = "/root"

// Of is the environment of a cluster's processes in place of that of their parent.
// What it returns comes out the same when it is given that again.
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

// Direct is the value of NO_PROXY: what the parent's says, and all of the cluster.
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

// path has absolute folders only: the processes' working folder is another than the user's.
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
