package deploy

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"drydock.dev/local/internal/manifest"
)

// AcceleratorVariable is the environment variable that fixes the accelerator of guests, kvm or tcg.
// Without it each node's probe chooses.
const AcceleratorVariable = "DRYDOCK_ACCEL"

const labelKVM = "drydock.dev/kvm"

// realNodes excludes the simulated nodes of a benchmark.
const realNodes = "!bench.drydock.dev/simulated"

// Accelerator is the only permitted accelerator, or empty.
type Accelerator string

// ParseAccelerator parses the variable's value.
func ParseAccelerator(value string) (Accelerator, error) {
	switch value {
	case "", "kvm", "tcg":
		return Accelerator(value), nil
	}
	return "", fmt.Errorf("%s is %q; it must be kvm, tcg or empty", AcceleratorVariable, value)
}

func (a Accelerator) expected() string {
	return map[Accelerator]string{"kvm": "usable", "tcg": "off"}[a]
}

// Fix sets the variable in virt-handler's probe. It reports whether the object is virt-handler.
func (a Accelerator) Fix(object *unstructured.Unstructured) (bool, error) {
	if object.GetKind() != "DaemonSet" || object.GetName() != "virt-handler" {
		return false, nil
	}
	return true, manifest.SetEnv(object, "probe-node", AcceleratorVariable, string(a))
}

// probed limits the wait for the probes. On a starved machine virt-launcher gives its guests five minutes.
const probed = 6 * time.Minute

// AwaitAccelerator waits until every node has its probe's result, and returns a text with the
// results of all nodes.
func (c *Cluster) AwaitAccelerator(ctx context.Context, a Accelerator) (string, error) {
	nodes := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	var text string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, probed, true, func(ctx context.Context) (bool, error) {
		list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: realNodes})
		if err != nil {
			text = fmt.Sprintf("listing the nodes: %v", err)
			return false, nil
		}
		var all bool
		all, text = accelerators(list.Items, a)
		return all, nil
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the nodes to say what guests run with (%s is %q): %w; they say: %s; to see more: drydock kubectl get events -A",
			AcceleratorVariable, a, err, text)
	}
	return text, nil
}

func accelerators(nodes []unstructured.Unstructured, a Accelerator) (all bool, text string) {
	all = len(nodes) > 0
	var lines []string
	for _, node := range nodes {
		labels := node.GetLabels()
		kvm := labels[labelKVM]
		all = all && kvm != "" && (a.expected() == "" || kvm == a.expected())
		lines = append(lines, fmt.Sprintf("%s: KVM %s, emulation %s", node.GetName(), orUnknown(kvm), orUnknown(labels["drydock.dev/tcg"])))
	}
	return all, strings.Join(lines, "; ")
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
