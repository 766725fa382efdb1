package scale

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/bench/cluster"
	"drydock.dev/drydock/internal/contracts/layout"
)

// vmisPerNode is the load of a big node.
const vmisPerNode = 200

// stages are kwok's rules for simulated nodes.
//
//go:embed stages.yaml
var stages []byte

// nodes are the simulated nodes and the kwok that keeps them alive.
type nodes struct {
	cluster *cluster.Cluster
	kwok    *exec.Cmd
	folder  string
	// exited is closed when kwok has ended.
	exited chan struct{}
}

// simulateNodes creates enough nodes for the VMIs, at least two, and starts kwok, which ends with
// the context.
func simulateNodes(ctx context.Context, c *cluster.Cluster, vmis int) (*nodes, error) {
	folder, err := os.MkdirTemp("", "kwok")
	if err != nil {
		return nil, fmt.Errorf("making a folder for kwok: %w", err)
	}
	n := &nodes{cluster: c, folder: folder, exited: make(chan struct{})}
	if err := n.startKwok(ctx); err != nil {
		return nil, err
	}
	for i := range vmis/vmisPerNode + 2 { // a migrating guest needs another node
		if err := c.Client.Create(ctx, node(i)); err != nil && !apierrors.IsAlreadyExists(err) {
			n.remove()
			return nil, fmt.Errorf("creating a simulated node: %w", err)
		}
	}
	err = cluster.Eventually(ctx, "the simulated nodes to be ready", func(ctx context.Context) (bool, error) {
		var list corev1.NodeList
		if err := c.Client.List(ctx, &list, client.HasLabels{cluster.SimulatedLabel}); err != nil {
			return false, err
		}
		for i := range list.Items {
			if !ready(&list.Items[i]) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		n.remove()
		return nil, err
	}
	return n, nil
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (n *nodes) startKwok(ctx context.Context) error {
	config := filepath.Join(n.folder, "stages.yaml")
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return fmt.Errorf("writing kwok's stages: %w", err)
	}
	log, err := os.Create(filepath.Join(n.folder, "kwok.log"))
	if err != nil {
		return fmt.Errorf("making kwok's log: %w", err)
	}
	defer log.Close()
	n.kwok = exec.CommandContext(ctx, filepath.Join(n.cluster.Programs, "kwok"),
		"--kubeconfig="+os.Getenv("KUBECONFIG"), "--config="+config,
		"--manage-nodes-with-label-selector="+cluster.SimulatedLabel,
		"--node-lease-duration-seconds=40", "--cidr=10.200.0.0/14", "--server-address=")
	n.kwok.Stdout, n.kwok.Stderr = log, log
	if err := n.kwok.Start(); err != nil {
		return fmt.Errorf("starting kwok, which make bench builds: %w", err)
	}
	go func() {
		defer close(n.exited)
		_ = n.kwok.Wait() // remove has ended it, or the wait for its nodes fails
	}()
	return nil
}

func (n *nodes) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := n.cluster.Client.DeleteAllOf(ctx, &corev1.Node{}, client.HasLabels{cluster.SimulatedLabel})
	if stop := n.kwok.Process.Signal(os.Interrupt); stop != nil && !errors.Is(stop, os.ErrProcessDone) {
		err = errors.Join(err, stop)
	}
	<-n.exited
	if err := errors.Join(err, os.RemoveAll(n.folder)); err != nil {
		fmt.Fprintf(os.Stderr, "removing the simulated nodes: %v\n", err)
	}
}

func node(number int) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("256"),
		corev1.ResourceMemory: resource.MustParse("2Ti"),
		corev1.ResourcePods:   resource.MustParse("1000"),
		layout.ResourceTUN:    resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("simulated-%d", number),
			Labels: map[string]string{
				cluster.SimulatedLabel: "true", v1.NodeSchedulable: "true",
				corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: cluster.SimulatedLabel, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
}
