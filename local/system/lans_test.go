//go:build system

package system

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// networkStatus is the annotation that Multus writes to the pods that it connects.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

func lansServe(t *testing.T, c *cluster) {
	c.drydock("kubectl", "apply", "-f", "lans.yaml")
	c.eventually("pods on one lan reach each other", c.lansWork)
	other := c.pod("other-lan")
	if got := c.mustExec("lan-a", "agent", "get", "http://"+other.Status.PodIP+":8080/"); got != "other-lan" {
		t.Errorf("over the pods' network the pod on the other lan answers %q", got)
	}
	if out, err := c.exec("lan-a", "agent", "get", "http://203.0.113.3:8080/"); err == nil {
		t.Errorf("a pod on another lan answers: %s", out)
	}
	if status := other.Annotations[networkStatus]; !strings.Contains(status, "203.0.113.3") {
		t.Errorf("the pod on the other lan is said to have the networks %q", status)
	}
	for _, pod := range webPods(c) {
		if status, ok := pod.Annotations[networkStatus]; ok {
			t.Errorf("Multus has connected %s, which asks for no network: %s", pod.Name, status)
		}
	}
	c.drydock("kubectl", "run", "intruder", "--image=drydock.test/agent:1", "--image-pull-policy=Never",
		"--annotations=k8s.v1.cni.cncf.io/networks=kube-public/theirs")
	c.eventually("a network of another namespace is refused", func() error { return c.hasEvent("intruder", "namespace isolation") })
	c.drydock("kubectl", "delete", "pod", "intruder", "--now")
}

// A kernel without VLANs must refuse the request, not ignore it.
func vlansServe(t *testing.T, c *cluster) {
	c.drydock("kubectl", "apply", "-f", "tagged.yaml")
	defer c.drydock("kubectl", "delete", "-f", "tagged.yaml", "--now")
	refused := false
	c.eventually("pods in a VLAN run or are refused", func() error {
		refused = c.hasEvent("tagged-b", "operation not supported") == nil
		pod, err := c.client().CoreV1().Pods("default").Get(context.Background(), "tagged-b", metav1.GetOptions{})
		if err == nil && !refused && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("tagged-b is %s, and nothing says that it is refused", pod.Status.Phase)
		}
		return err
	})
	if refused {
		t.Log("this kernel's bridges know no VLANs: a pod that asks for one is refused")
		return
	}
	c.pod("tagged-a")
	if got := c.mustExec("tagged-a", "agent", "get", "http://203.0.113.5:8080/"); got != "tagged-b" {
		t.Errorf("in one VLAN %q answers", got)
	}
	if out, err := c.exec("lan-a", "agent", "get", "http://203.0.113.5:8080/"); err == nil {
		t.Errorf("a pod in a VLAN answers one that is not in it: %s", out)
	}
}

func (c *cluster) lansWork() error {
	for _, way := range []struct{ from, address, to string }{
		{"lan-a", "203.0.113.2", "lan-b"}, {"lan-b", "203.0.113.1", "lan-a"},
	} {
		if out, err := c.exec(way.from, "agent", "get", "http://"+way.address+":8080/"); err != nil || out != way.to {
			return fmt.Errorf("asking %s from %s: %w: %q", way.to, way.from, err, out)
		}
	}
	return nil
}

func (c *cluster) pod(name string) (pod *corev1.Pod) {
	c.t.Helper()
	c.eventually(name+" runs", func() (err error) {
		pod, err = c.client().CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	return pod
}

func (c *cluster) hasEvent(pod, text string) error {
	events, err := c.client().CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return err
	}
	var said []string
	for _, event := range events.Items {
		if strings.Contains(event.Message, text) {
			return nil
		}
		said = append(said, event.Message)
	}
	return fmt.Errorf("its events are %q", said)
}
