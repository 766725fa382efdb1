//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestABridgedGuestAndPodsReachEachOther boots a guest with its pod's address. It must become Ready only when a
// process in it listens, and NetworkPolicies must treat it as a pod. internal/handler/network covers rules and
// addresses; here they carry real traffic. TestGuestSeesTheMachineThatWasAskedFor does the same behind
// masquerade.
func TestABridgedGuestAndPodsReachEachOther(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, toolsPod(ns, "peer"))
	servesPort80(t, ns, "bridged")
	vmi := onPodBridge(newVMI(ns, "bridged"))
	vmi.Labels = map[string]string{"app": "bridged"}
	vmi.Spec.ReadinessProbe = &v1.Probe{Handler: v1.Handler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9999)}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 3}
	g := boot(t, vmi)
	g.sees("its name", "hostname", "bridged")
	isReadyWhen(t, g, "(while :; do nc -l -p 9999; done) </dev/null >/dev/null 2>&1 &")
	reachesPods(t, g)
	isPoliced(t, g)
}

// servesPort80 makes a Service for port 80 of the guest with the label app=name.
func servesPort80(t *testing.T, ns, name string) {
	t.Helper()
	create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Port: 8000, TargetPort: intstr.FromInt32(80)}},
		},
	})
}

// reachesPods checks that the guest and the pod "peer" reach each other, by addresses and by the guest's Service.
func reachesPods(t *testing.T, g *guest) {
	t.Helper()
	ns := g.namespace
	address := guestAddress(t, g)
	peer := awaitPodRunning(t, ns, "peer")

	fromPod(t, ns, "ping -c 3 -W 5 "+address)
	fromPod(t, ns, fmt.Sprintf("echo hello-guest | nc -w 5 %s 7777 | grep hello-guest", address))
	service := serviceAddress(t, ns, g.name)
	fromPod(t, ns, "nslookup "+g.name+"."+ns+".svc.cluster.local | grep "+service)
	fromPod(t, ns, httpGet(service, 8000)+" | grep '200 OK'")
	for _, command := range []string{"ping -c 3 -W 5 " + peer.Status.PodIP, "nslookup kubernetes.default.svc.cluster.local"} {
		eventually(t, command+" in the guest", func(context.Context) error {
			_, err := g.try(command)
			return err
		})
	}
}

// TestOnlyDeclaredPortsAreOpen boots a guest that listens on more ports than it declares: the others must be closed,
// which only real traffic shows. Its agent reports its readiness.
func TestOnlyDeclaredPortsAreOpen(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	create(t, toolsPod(ns, "peer"))
	vmi := newVMI(ns, "closed")
	vmi.Spec.ReadinessProbe = &v1.Probe{Handler: v1.Handler{GuestAgentPing: &v1.GuestAgentPing{}}, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name:                   "default",
		InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
		Ports:                  []v1.Port{{Name: "echo", Port: 7777, Protocol: "TCP"}},
	}}
	g := boot(t, vmi)
	address := guestAddress(t, g)
	awaitPodRunning(t, ns, "peer")
	fromPod(t, ns, fmt.Sprintf("echo hello | nc -w 5 %s 7777 | grep hello", address))
	if out, err := inPod(t, ns, "peer", httpGet(address, 80)); err == nil {
		t.Errorf("port 80 is open though only 7777 is declared; it answered %q", out)
	}
	awaitVMI(t, ns, "closed", "condition Ready", ready)
	isPoliced(t, g)
}

func portIsForwarded(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, binary("virtctl"), "-n", ns, "port-forward", "--stdio", "vmi/machine", "7777")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(stdin, "through the API server"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "through the API server" {
		t.Errorf("the echo through port-forward was %q (error: %v)", line, err)
	}
	cancel()
	_ = command.Wait() // the context ended it
}

// busybox's static wget can't fetch a page.
func httpGet(address string, port int) string {
	return fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 %s %d`, address, port)
}

func serviceAddress(t *testing.T, namespace, name string) string {
	t.Helper()
	var service corev1.Service
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &service); err != nil {
		t.Fatalf("reading the Service %s: %v", name, err)
	}
	return service.Spec.ClusterIP
}

func guestAddress(t *testing.T, g *guest) string {
	t.Helper()
	vmi := awaitVMI(t, g.namespace, g.name, "an address", func(vmi *v1.VirtualMachineInstance) bool {
		return len(vmi.Status.Interfaces) > 0 && net.ParseIP(vmi.Status.Interfaces[0].IP) != nil
	})
	return vmi.Status.Interfaces[0].IP
}

func awaitPodRunning(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return await(t, pod, &corev1.PodList{}, "phase Running", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodRunning
	})
}

// Services and routes may be a moment late.
func fromPod(t *testing.T, namespace, command string) {
	t.Helper()
	eventually(t, command+" in pod peer", func(context.Context) error {
		out, err := inPod(t, namespace, "peer", command)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// The reason or the message has text.
func hasEvent(namespace, name, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.client.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && strings.Contains(strings.ToLower(e.Reason+" "+e.Message), text) {
				return nil
			}
		}
		return fmt.Errorf("no event about %s says %q", name, text)
	}
}
