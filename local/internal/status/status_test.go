package status

import (
	"slices"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	down := Cluster{Name: "c", Dir: "/d", Nodes: []Node{{Name: "node1"}}}
	if got := down.Text(); !strings.Contains(got, "is down. Start it with: drydock up") {
		t.Errorf("a cluster that is down: %s", got)
	}
	up := Cluster{Name: "c", Dir: "/d", Supervisor: 1, ControlPlane: []Component{{"etcd", 7}, {"kube-apiserver", 0}},
		Nodes: []Node{{Name: "node1", IP: "10.77.0.11", Init: 9, Ready: true, Components: []Component{{"kubelet", 10}}}, {Name: "node2", IP: "10.77.0.12"}}}
	text := up.Text()
	for _, want := range []string{
		"control plane  etcd                     running   7\n",
		"control plane  kube-apiserver           stopped   \n",
		"node1          node 10.77.0.11          Ready     9\n",
		"node1          kubelet                  running   10\n",
		"node2          node 10.77.0.12          NotReady  \n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the status lacks %q:\n%s", want, text)
		}
	}
}

func TestMissingNamesWhatIsWaitedFor(t *testing.T) {
	starting := Cluster{
		ControlPlane: []Component{{"etcd", 7}, {"kube-apiserver", 0}},
		Nodes: []Node{
			{Name: "node1", Init: 9, Ready: true, Components: []Component{{"kubelet", 10}}},
			{Name: "node2", Init: 11, Components: []Component{{"containerd", 12}, {"kubelet", 0}}},
			{Name: "node3", Components: []Component{{"kubelet", 0}}},
		},
	}
	want := []string{"kube-apiserver", "node2 is not ready", "kubelet of node2", "node3"}
	if got := starting.Missing(); !slices.Equal(got, want) {
		t.Errorf("missing is %q, want %q", got, want)
	}
}
