package main

import (
	"go/parser"
	"go/token"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"
)

const manifest = "../../internal/render/dns.yaml"

// TestThePluginsAreThoseOfTheCorefile: a directive without its plugin stops the name server, and a plugin without
// a directive is compiled for nothing.
func TestThePluginsAreThoseOfTheCorefile(t *testing.T) {
	used, imported := directives(t), imports(t)
	slices.Sort(used)
	slices.Sort(imported)
	if !slices.Equal(used, imported) {
		t.Errorf("the Corefile uses %q, the program imports %q", used, imported)
	}
	linked := caddy.ListPlugins()["others"]
	for _, name := range used {
		if !slices.Contains(linked, "dns."+name) {
			t.Errorf("the program has no plugin for the directive %s", name)
		}
		if !slices.Contains(dnsserver.Directives, name) {
			t.Errorf("CoreDNS knows no place in its order for %s", name)
		}
	}
}

// TestNamesOutsideTheClusterAreForwarded starts the name server with the cluster's Corefile, without the directive that
// needs an API server, and asks it for a name that only another name server knows.
func TestNamesOutsideTheClusterAreForwarded(t *testing.T) {
	asked := make(chan string, 100)
	upstream := listen(t)
	server := &dns.Server{PacketConn: upstream, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		asked <- r.Question[0].Name
		answer, err := dns.NewRR("example.org. 60 IN A 192.0.2.7")
		if err != nil {
			t.Error(err)
		}
		m := new(dns.Msg).SetReply(r)
		m.Answer = append(m.Answer, answer)
		if err := w.WriteMsg(m); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = server.ActivateAndServe() }() // ends with its socket
	defer func() { _ = server.Shutdown() }()

	address := serve(t, upstream.LocalAddr().String())
	client := &dns.Client{Timeout: time.Minute}
	for _, from := range []string{"the other name server", "the cache"} {
		if from == "the cache" {
			_ = server.Shutdown() // nobody else knows the name any more
		}
		query := new(dns.Msg).SetQuestion("example.org.", dns.TypeA)
		got, _, err := client.Exchange(query, address)
		if err != nil || len(got.Answer) != 1 || !strings.HasSuffix(got.Answer[0].String(), "192.0.2.7") {
			t.Fatalf("from %s: got %v, %v", from, got, err)
		}
	}
	if name := <-asked; name != "example.org." {
		t.Errorf("the other name server was asked for %s", name)
	}
}

func serve(t *testing.T, upstream string) string {
	t.Helper()
	text := regexp.MustCompile(`(?s)kubernetes .*?\n    }\n`).ReplaceAllString(corefile(t), "")
	text = strings.NewReplacer(".:5353", ".:0", "/etc/resolv.conf", upstream, ":8080", "127.0.0.1:0", ":8181", "127.0.0.1:0").Replace(text)
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"})
	if err != nil {
		t.Fatalf("starting the name server: %v", err)
	}
	t.Cleanup(func() {
		if err := instance.Stop(); err != nil {
			t.Errorf("stopping the name server: %v", err)
		}
	})
	_, port, err := net.SplitHostPort(instance.Servers()[0].LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func listen(t *testing.T) net.PacketConn {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return socket
}

func imports(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, spec := range file.Imports {
		if _, name, found := strings.Cut(strings.Trim(spec.Path.Value, `"`), "/coredns/plugin/"); found {
			names = append(names, name)
		}
	}
	return names
}

// CoreDNS' own parser splits the lines.
func directives(t *testing.T) []string {
	t.Helper()
	blocks, err := caddyfile.Parse("Corefile", strings.NewReader(corefile(t)), nil)
	if err != nil || len(blocks) != 1 {
		t.Fatalf("the Corefile has %d server blocks, %v", len(blocks), err)
	}
	var names []string
	for name := range blocks[0].Tokens {
		names = append(names, name)
	}
	return names
}

func corefile(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var config struct {
			Kind string
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(document), &config); err == nil && config.Kind == "ConfigMap" {
			return config.Data["Corefile"]
		}
	}
	t.Fatalf("%s has no ConfigMap", manifest)
	return ""
}
