//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

// onNode returns the path on this machine of a file in a node's folders for network plugins.
func onNode(node string, elem ...string) string {
	return filepath.Join(append([]string{os.Getenv("DRYDOCK_DIR"), "nodes", node, "cni"}, elem...)...)
}

func writeFile(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Errorf("removing %s: %v", path, err)
		}
	})
}

// Without config, each node has the configuration.
func newAttachment(t *testing.T, ns, name string, config map[string]any) {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}}
	obj.SetNamespace(ns)
	obj.SetName(name)
	if config != nil {
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		obj.Object["spec"] = map[string]any{"config": string(text)}
	}
	create(t, obj)
	t.Cleanup(func() { deleteObject(t, obj) })
}

func nodeNetwork(t *testing.T, node string) netns.NsHandle {
	t.Helper()
	for _, n := range status(t).Nodes {
		if n.Name != node {
			continue
		}
		for _, c := range n.Components {
			if c.Name == "kubelet" {
				ns, err := netns.GetFromPid(c.PID)
				if err != nil {
					t.Fatalf("opening the network namespace of %s: %v", node, err)
				}
				t.Cleanup(func() { _ = ns.Close() })
				return ns
			}
		}
	}
	t.Fatalf("node %s has no kubelet", node)
	return 0
}

// A cable is a bridge of the same name on each node, with a link between them. node1 has an address on it.
type cable struct {
	name    string
	first   netns.NsHandle
	onFirst *netlink.Handle
	port    netlink.Link
}

func newCable(t *testing.T, name, address string) *cable {
	t.Helper()
	c := &cable{name: name, first: nodeNetwork(t, node1)}
	second := nodeNetwork(t, node2)
	c.onFirst = c.bridge(t, c.first)
	onSecond := c.bridge(t, second)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Namespace = name+"-up", netlink.NsFd(c.first)
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: name + "-up", PeerNamespace: netlink.NsFd(second)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatalf("laying the cable %s: %v", name, err)
	}
	c.port = plug(t, c.onFirst, name+"-up", name)
	plug(t, onSecond, name+"-up", name)
	if address == "" {
		return c
	}
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.onFirst.AddrAdd(linkOf(t, c.onFirst, name), addr); err != nil {
		t.Fatalf("giving %s an address: %v", name, err)
	}
	return c
}

func (c *cable) bridge(t *testing.T, node netns.NsHandle) *netlink.Handle {
	t.Helper()
	nl, err := netlink.NewHandleAt(node)
	if err != nil {
		t.Fatal(err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = c.name
	if err := nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatalf("making the bridge %s: %v", c.name, err)
	}
	t.Cleanup(func() {
		for _, name := range []string{c.name + "-up", c.name} {
			if link, err := nl.LinkByName(name); err == nil {
				if err := nl.LinkDel(link); err != nil {
					t.Errorf("removing %s: %v", name, err)
				}
			}
		}
		nl.Close()
	})
	if err := nl.LinkSetUp(linkOf(t, nl, c.name)); err != nil {
		t.Fatal(err)
	}
	return nl
}

func linkOf(t *testing.T, nl *netlink.Handle, name string) netlink.Link {
	t.Helper()
	link, err := nl.LinkByName(name)
	if err != nil {
		t.Fatalf("looking for %s: %v", name, err)
	}
	return link
}

func plug(t *testing.T, nl *netlink.Handle, name, bridge string) netlink.Link {
	t.Helper()
	link := linkOf(t, nl, name)
	if err := nl.LinkSetMaster(link, linkOf(t, nl, bridge)); err != nil {
		t.Fatal(err)
	}
	if err := nl.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

func (c *cable) passed(t *testing.T) uint64 {
	t.Helper()
	s := linkOf(t, c.onFirst, c.port.Attrs().Name).Attrs().Statistics
	return s.RxBytes + s.TxBytes
}

// attachment returns the configuration of an attachment to the cable's bridge, without addresses.
func (c *cable) attachment() map[string]any {
	return map[string]any{"cniVersion": "1.0.0", "name": c.name, "type": "bridge", "bridge": c.name}
}

// dialFrom connects from a node.
func dialFrom(t *testing.T, node netns.NsHandle, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	eventually(t, "a connection to "+address, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends in the node's namespace
			done <- func() (err error) {
				if err := netns.Set(node); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(ctx, oneAttempt)
				defer cancel()
				conn, err = (&net.Dialer{}).DialContext(ctx, "tcp4", address)
				return err
			}()
		}()
		return <-done
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// annotateHandlers makes the pods of virt-handler ask Multus for networks; empty reverts it.
func annotateHandlers(t *testing.T, networks string) {
	t.Helper()
	value := `null`
	if networks != "" {
		value = fmt.Sprintf("%q", networks)
	}
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%s}}}}}`, launcherpod.NetworksAnnotation, value)
	for _, args := range [][]string{
		{"-n", "kubevirt", "patch", "daemonset", "virt-handler", "--type", "merge", "-p", patch},
		{"-n", "kubevirt", "rollout", "status", "daemonset/virt-handler", "--timeout=" + rolloutTime},
	} {
		if out, err := kubectl(context.Background(), args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
}
