package render

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/local/internal/host"
	"drydock.dev/local/internal/layout"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A change of configuration appears as a diff of golden files. Rewrite them with: go test ./internal/render
// -update
func TestEverythingRendered(t *testing.T) {
	c := layout.Cluster{Name: "golden", Dir: "/data", Net: 77, Nodes: []string{"node1", "node2"}}
	old := host.Facts{KernelMajor: 5, KernelMinor: 10}
	modern := host.Facts{CPUs: 2, KernelMajor: 6, KernelMinor: 1, SysResource: true, CgroupV2: true, Nameservers: []string{"192.0.2.53", "fd00::53"}}
	lines := func(args []string) string { return strings.Join(args, "\n") + "\n" }
	files := map[string]func() (string, error){
		"etcd.args":              func() (string, error) { return lines(Etcd(c)), nil },
		"apiserver.args":         func() (string, error) { return lines(APIServer(c)), nil },
		"controllermanager.args": func() (string, error) { return lines(ControllerManager(c)), nil },
		"scheduler.args":         func() (string, error) { return lines(Scheduler(c)), nil },
		"kubelet.args":           func() (string, error) { return lines(KubeletFlags(c, "node2")), nil },
		"kubelet-modern.yaml":    func() (string, error) { return Kubelet(c, modern, "node2") },
		"kubelet-old.yaml":       func() (string, error) { return Kubelet(c, old, "node2") },
		"proxy-modern.yaml":      func() (string, error) { return Proxy(c, modern, "node2") },
		"proxy-old.yaml":         func() (string, error) { return Proxy(c, old, "node2") },
		"containerd-modern.toml": func() (string, error) { return Containerd(modern, "/bin/runc"), nil },
		"containerd-old.toml":    func() (string, error) { return Containerd(old, "/bin/runc"), nil },
		"cni.conflist":           func() (string, error) { return CNI(c, "node2", 1400, "/bin/multus"), nil },
		"resolv.conf":            func() (string, error) { return ResolvConf(modern), nil },
		"dns.yaml":               func() (string, error) { return DNS(c), nil },
		"networks.yaml":          func() (string, error) { return Networks(), nil },
		"policies.yaml":          func() (string, error) { return Policies(), nil },
		"audit-policy.yaml":      func() (string, error) { return AuditPolicy(), nil },
	}
	for name, render := range files {
		t.Run(name, func(t *testing.T) {
			got, err := render()
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name)
			if *update {
				if err := layout.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s changed; if that is wanted: go test ./internal/render -update\ngot:\n%s", path, got)
			}
		})
	}
}
