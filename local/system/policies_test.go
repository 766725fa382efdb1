//go:build system

package system

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods are judged from their first packet to their last, whatever is killed meanwhile. internal/network tests the
// policies' fields.
func policiesHold(t *testing.T, c *cluster) {
	c.drydock("kubectl", "apply", "-f", "policies.yaml")
	c.eventually("the kubelet reaches the fenced pod", func() error { return c.ready("fenced") })
	c.pod("friend")
	url := "http://" + c.pod("fenced").Status.PodIP + ":8080/"
	web := webPods(c)["node1"]
	other := "http://" + web.Status.PodIP + ":8080/"
	c.silent(map[string]string{"asker": url, "friend": url, "fenced": other})
	c.startsFenced(other)
	if got := strings.TrimSpace(c.drydock("kubectl", "get", "--raw", "/api/v1/namespaces/default/pods/fenced:8080/proxy/")); got != "fenced" {
		t.Errorf("through the API server the fenced pod answers %q", got)
	}

	c.drydock("kubectl", "apply", "-f", "admitting.yaml")
	if got := c.mustExec("friend", "agent", "get", url); got != "fenced" {
		t.Errorf("the fenced pod answers its friend %q", got)
	}
	c.silent(map[string]string{"asker": url})

	c.kill(c.pids()["node1/drydock-policies"])
	c.silent(map[string]string{"asker": url})
	c.eventually("a label that is taken away counts", func() error {
		c.drydock("kubectl", "label", "pod", "friend", "friend-")
		if out, err := c.exec("friend", "agent", "get", url); err == nil {
			return fmt.Errorf("it is still admitted: %s", out)
		}
		return nil
	})
	c.drydock("kubectl", "delete", "networkpolicy", "fenced", "admitting")
	c.mustExec("asker", "agent", "get", url)
	c.drydock("kubectl", "delete", "pod", "fenced", "friend", "--now")
}

func (c *cluster) silent(asks map[string]string) {
	c.t.Helper()
	var asking sync.WaitGroup
	for from, url := range asks {
		asking.Go(func() {
			if out, err := c.exec(from, "agent", "get", url); err == nil {
				c.t.Errorf("%s reaches %s, which answers %q", from, url, out)
			}
		})
	}
	asking.Wait()
}

// startsFenced starts pods that send requests at once and must get no answer: their containers start when their
// policies are in force.
func (c *cluster) startsFenced(url string) {
	c.t.Helper()
	for i := range 2 {
		name := fmt.Sprintf("early-%d", i)
		c.drydock("kubectl", "run", name, "--image=drydock.test/agent:1", "--image-pull-policy=Never", "--restart=Never",
			"--labels=fenced=yes", "--overrides={\"spec\":{\"nodeName\":\"node2\"}}", "--", "get", url)
		c.eventually(name+" gets no answer", func() error {
			pod, err := c.client().CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
			if err == nil && pod.Status.Phase == corev1.PodSucceeded {
				c.t.Errorf("%s was answered", name)
				return nil
			}
			if err == nil && pod.Status.Phase != corev1.PodFailed {
				err = fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return err
		})
		c.drydock("kubectl", "delete", "pod", name, "--now")
	}
}

func (c *cluster) ready(name string) error {
	pod, err := c.client().CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %+v", name, pod.Status.Conditions)
}
