// Package policyagent holds a node to the cluster's NetworkPolicies. It watches pods, namespaces and
// policies, and is told by the network plugin of each pod of the node that was given its addresses,
// before any of its containers starts; it keeps the node's table of nftables as podpolicy decides.
//
// What the kernel has stays when the agent ends: pods that run are judged by the rules of the moment,
// and new pods wait for the next agent. Sandboxes are noted in files, which the network plugin deletes
// with the sandbox: a pod whose object was deleted by force is judged as long as it runs.
//
// It decides no rule, and writes nothing to the API server. See decision 650.
package policyagent

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"

	"drydock.dev/local/internal/podpolicy"
)

const (
	// interval is between two changes of the rules that no pod waits for.
	interval = 100 * time.Millisecond
	// retry is after rules that the kernel did not take.
	retry = 2 * time.Second
)

// Config is the node that an agent is for.
type Config struct {
	Node string
	// Bridge is the interface that the node's pods are behind.
	Bridge string
	Host   netip.Addr
	// Folder is for the agent's socket and its notes. It ends with the node.
	Folder string
}

// cluster is what the agent knows of the cluster.
type cluster interface {
	Pods() []*corev1.Pod
	Namespaces() []*corev1.Namespace
	Policies() []*networkingv1.NetworkPolicy
	// Pod reads a pod that its sandbox was made for, nil if it is gone.
	Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error)
}

// agent is the loop.
type agent struct {
	Config
	cluster   cluster
	sandboxes *sandboxes
	// load gives a script to the kernel.
	load func(script string) error
	// wake has one element when something has changed.
	wake chan struct{}

	mu     sync.Mutex
	loaded string
	over   []string
}

func newAgent(c Config, of cluster, load func(string) error) (*agent, error) {
	noted, err := openSandboxes(c.Folder)
	if err != nil {
		return nil, err
	}
	return &agent{Config: c, cluster: of, sandboxes: noted, load: load, wake: make(chan struct{}, 1)}, nil
}

// changed has the rules made anew soon.
func (a *agent) changed() {
	select {
	case a.wake <- struct{}{}:
	default: // it is known already
	}
}

// run keeps the rules until the context ends.
func (a *agent) run(ctx context.Context) {
	for {
		pause := interval
		if err := a.apply(); err != nil {
			log.Print(err)
			a.changed()
			pause = retry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
	}
}

// apply makes the kernel's rules be those of the moment.
func (a *agent) apply() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	script, over := podpolicy.Rules(a.state())
	if !slices.Equal(over, a.over) {
		a.over = over
		for _, namespace := range over {
			log.Printf("the network policies of namespace %s admit more than fits: what is above the limit is not admitted; make them fewer or simpler", namespace)
		}
	}
	if script == a.loaded {
		return nil
	}
	if err := a.load(script); err != nil {
		return fmt.Errorf("loading the rules of the network policies: %w", err)
	}
	a.loaded = script
	return nil
}

// state gathers what the rules depend on. A sandbox's addresses are its own, whatever a pod's
// status says; among statuses the youngest pod's counts.
func (a *agent) state() podpolicy.State {
	s := podpolicy.State{Bridge: a.Bridge, Host: a.Host, Policies: a.cluster.Policies(), Namespaces: map[string]labels.Set{}}
	for _, namespace := range a.cluster.Namespaces() {
		s.Namespaces[namespace.Name] = namespace.Labels
	}
	objects := a.cluster.Pods()
	slices.SortFunc(objects, func(x, y *corev1.Pod) int { return y.CreationTimestamp.Compare(x.CreationTimestamp.Time) })
	taken := map[netip.Addr]bool{}
	for _, pod := range a.sandboxes.pods(objects, a.Node) {
		s.Pods = append(s.Pods, claim(pod, taken))
	}
	for _, object := range objects {
		if pod, ok := podpolicy.PodOf(object, a.Node); ok {
			s.Pods = append(s.Pods, claim(pod, taken))
		}
	}
	return s
}

// claim leaves a pod the addresses that no other has taken.
func claim(pod podpolicy.Pod, taken map[netip.Addr]bool) podpolicy.Pod {
	var own []netip.Addr
	for _, addr := range pod.Addresses {
		if !taken[addr] {
			taken[addr] = true
			own = append(own, addr)
		}
	}
	pod.Addresses = own
	return pod
}

// admit judges a pod by its policies from now on.
func (a *agent) admit(ctx context.Context, s sandbox) error {
	pod, err := a.cluster.Pod(ctx, s.Namespace, s.Name, s.UID)
	if err != nil {
		return fmt.Errorf("reading pod %s/%s for its network policies: %w", s.Namespace, s.Name, err)
	}
	if pod == nil {
		return fmt.Errorf("pod %s/%s (%s) is gone: it gets no network", s.Namespace, s.Name, s.UID)
	}
	seen, ok := podpolicy.PodOf(pod, a.Node)
	if !ok {
		return fmt.Errorf("pod %s/%s has ended: it gets no network", s.Namespace, s.Name)
	}
	s.Labels, s.Ports = seen.Labels, seen.Ports
	s.Object = seen.UID
	if err := a.sandboxes.note(s); err != nil {
		return err
	}
	if err := a.apply(); err != nil {
		return errors.Join(err, a.sandboxes.forget(s.Container))
	}
	return nil
}
