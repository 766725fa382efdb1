package environ

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"

	"drydock.dev/local/internal/layout"
)

var cluster = layout.Cluster{Name: "env", Dir: "/data", Net: 91, Nodes: []string{"node1", "node2"}}

func TestOf(t *testing.T) {
	const path = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
	direct := "localhost,127.0.0.1,10.91.0.0/16,.svc,.cluster.local,node1,node2"
	tests := map[string]struct{ parent, want []string }{
		"an empty environment gives a PATH and root's home": {nil, []string{"HOME=/root", path}},
		"what configures a component is not passed on": {
			[]string{"ETCD_DATA_DIR=/tmp/x", "ETCD_LISTEN_CLIENT_URLS=http://0.0.0.0:2379", "KUBECONFIG=/home/u/.kube/config", "GODEBUG=x509sha1=1", "SSH_AUTH_SOCK=/tmp/a", "AWS_SECRET_ACCESS_KEY=s", "LD_PRELOAD=/tmp/x.so", "LANG=de_DE.UTF-8"},
			[]string{"HOME=/root", path},
		},
		"a user's home and relative folders of the PATH are left out": {
			[]string{"HOME=/home/u", "PATH=bin:/opt/x/bin:.:/usr/bin"},
			[]string{"HOME=/root", "PATH=/opt/x/bin:/usr/bin:/usr/local/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"},
		},
		"exceptions without a proxy mean nothing": {[]string{"NO_PROXY=corp"}, []string{"HOME=/root", path}},
		"an empty proxy is none":                  {[]string{"HTTPS_PROXY="}, []string{"HOME=/root", path}},
		"a proxy comes with the cluster as exceptions": {
			[]string{"HTTPS_PROXY=http://proxy:3128"},
			[]string{"HOME=/root", path, "HTTPS_PROXY=http://proxy:3128", "NO_PROXY=" + direct, "no_proxy=" + direct},
		},
		"exceptions of both spellings are kept": {
			[]string{"https_proxy=http://proxy:3128", "NO_PROXY=corp, localhost", "no_proxy=.lan,corp", "SSL_CERT_FILE=/etc/corp.pem"},
			[]string{"HOME=/root", path, "SSL_CERT_FILE=/etc/corp.pem", "https_proxy=http://proxy:3128",
				"NO_PROXY=corp,localhost,.lan,127.0.0.1,10.91.0.0/16,.svc,.cluster.local,node1,node2",
				"no_proxy=corp,localhost,.lan,127.0.0.1,10.91.0.0/16,.svc,.cluster.local,node1,node2"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := Of(cluster, test.parent)
			if !slices.Equal(got, test.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if again := Of(cluster, got); !slices.Equal(again, got) {
				t.Errorf("a child of a child gets:\n%s", strings.Join(again, "\n"))
			}
		})
	}
}

// TestNothingOfTheClusterGoesThroughTheProxy asks Go's own rules, which the components follow.
func TestNothingOfTheClusterGoesThroughTheProxy(t *testing.T) {
	values := parse(Of(cluster, []string{"HTTP_PROXY=http://proxy:3128", "HTTPS_PROXY=http://proxy:3128"}))
	proxy := (&httpproxy.Config{HTTPProxy: values["HTTP_PROXY"], HTTPSProxy: values["HTTPS_PROXY"], NoProxy: values["NO_PROXY"]}).ProxyFunc()
	for address, proxied := range map[string]bool{
		cluster.APIServer(): false,
		"https://" + cluster.HostIP().String() + ":2379":         false,
		"https://" + cluster.NodeIP("node2").String() + ":10250": false,
		"https://node1:10250":                                    false,
		"https://" + cluster.KubernetesIP().String():             false,
		"http://web.default.svc/":                                false,
		"http://web.default.svc.cluster.local/":                  false,
		"http://10.91.65.7:8080/":                                false,
		"http://localhost:10248/healthz":                         false,
		"https://registry.example.com/v2/":                       true,
		"http://10.92.0.1/":                                      true,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		through, err := proxy((&http.Request{URL: u}).URL)
		if err != nil || (through != nil) != proxied {
			t.Errorf("%s goes through %v, %v", address, through, err)
		}
	}
}
