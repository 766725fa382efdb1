package podpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rule is an ingress or egress rule. Without peers it permits all peers, without ports all ports.
type rule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

func rulesOf(policy *networkingv1.NetworkPolicy, direction networkingv1.PolicyType) []rule {
	var rules []rule
	if direction == networkingv1.PolicyTypeIngress {
		for _, r := range policy.Spec.Ingress {
			rules = append(rules, rule{r.From, r.Ports})
		}
		return rules
	}
	for _, r := range policy.Spec.Egress {
		rules = append(rules, rule{r.To, r.Ports})
	}
	return rules
}

// peers returns nft conditions, one of which must match a rule's peers. Each ends with a space, and the empty
// condition always matches.
func (b *builder) peers(namespace, address string, peers []networkingv1.NetworkPolicyPeer) []string {
	if len(peers) == 0 {
		return []string{""}
	}
	var conditions []string
	for _, peer := range peers {
		if peer.IPBlock != nil {
			if block, ok := b.block(namespace, address, peer.IPBlock); ok {
				conditions = append(conditions, block)
			}
			continue
		}
		if set := b.selected(namespace, peer); set != "" {
			conditions = append(conditions, fmt.Sprintf("%s @%s ", address, set))
		}
	}
	return conditions
}

// An IPv6 range matches no packet of a pod.
func (b *builder) block(namespace, address string, block *networkingv1.IPBlock) (string, bool) {
	within, err := netip.ParsePrefix(block.CIDR)
	if err != nil || !within.Addr().Is4() || !b.spend(namespace, len(block.Except)) {
		return "", false
	}
	condition := "meta nfproto ipv4 "
	if within.Bits() > 0 {
		condition = fmt.Sprintf("%s %s ", address, within.Masked())
	}
	var except []netip.Prefix
	for _, text := range block.Except {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return "", false
		}
		except = append(except, prefix.Masked())
	}
	if except = disjoint(except); len(except) > 0 {
		condition += fmt.Sprintf("%s != { %s } ", address, list(except))
	}
	return condition, true
}

// nft rejects overlapping sets.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(x, y netip.Prefix) int { return x.Bits() - y.Bits() })
	var kept []netip.Prefix
	for _, p := range prefixes {
		if !p.Addr().Is4() {
			continue
		}
		if p.Bits() == 0 {
			return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1")} // nft has no prefix for all addresses in a set
		}
		if !slices.ContainsFunc(kept, func(k netip.Prefix) bool { return k.Overlaps(p) }) {
			kept = append(kept, p)
		}
	}
	slices.SortFunc(kept, func(x, y netip.Prefix) int { return x.Addr().Compare(y.Addr()) })
	return kept
}

// selected returns the name of the set of pods that a peer selects, "" if there are none. A selector that is
// invalid or above the limit selects none.
func (b *builder) selected(namespace string, peer networkingv1.NetworkPolicyPeer) string {
	if !b.afford(namespace, peer.PodSelector) || !b.afford(namespace, peer.NamespaceSelector) {
		return ""
	}
	pods, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
	if peer.PodSelector == nil {
		pods = labels.Everything()
	}
	if err != nil {
		return ""
	}
	namespaces, within := labels.Everything(), namespace
	if peer.NamespaceSelector != nil {
		if namespaces, err = metav1.LabelSelectorAsSelector(peer.NamespaceSelector); err != nil {
			return ""
		}
		within = ""
	}
	return b.set(namespace, "ipv4_addr", fmt.Sprintf("pods %q %q %q", within, namespaces, pods), func() []string {
		var found []string
		for _, name := range slices.Sorted(maps.Keys(b.byNamespace)) {
			if within != "" && name != within || !namespaces.Matches(b.Namespaces[name]) {
				continue
			}
			for _, pod := range b.byNamespace[name] {
				if pods.Matches(labels.Set(pod.Labels)) {
					for _, addr := range pod.Addresses {
						found = append(found, addr.String())
					}
				}
			}
		}
		return found
	})
}

// set declares a set with the given elements once and returns its name.
func (b *builder) set(namespace, kind, key string, elements func() []string) string {
	if name, known := b.sets[key]; known {
		return name
	}
	if !b.spend(namespace, 1) {
		return ""
	}
	found := elements()
	if len(found) == 0 {
		b.sets[key] = ""
		return ""
	}
	if !b.spend(namespace, len(found)) {
		return "" // another namespace may still afford it
	}
	name := fmt.Sprintf("set%d", len(b.sets))
	b.sets[key] = name
	fmt.Fprintf(&b.declarations, "\tset %s {\n\t\ttype %s\n\t\telements = { %s }\n\t}\n", name, kind, strings.Join(found, ", "))
	return name
}

var protocols = map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp", corev1.ProtocolSCTP: "sctp"}

// ports returns nft conditions, one of which must match a rule's ports, in the form of peers.
func (b *builder) ports(namespace string, direction networkingv1.PolicyType, ports []networkingv1.NetworkPolicyPort) []string {
	if len(ports) == 0 {
		return []string{""}
	}
	var conditions []string
	numbers := map[string][]span{}
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		word, known := protocols[protocol]
		switch {
		case !known:
		case port.Port == nil:
			conditions = append(conditions, fmt.Sprintf("meta l4proto %s ", word))
		case port.Port.Type == intstr.String:
			if set := b.named(namespace, direction, port.Port.StrVal, protocol); set != "" {
				conditions = append(conditions, fmt.Sprintf("ip daddr . %s dport @%s ", word, set))
			}
		default:
			first, last := port.Port.IntVal, port.Port.IntVal
			if port.EndPort != nil {
				last = *port.EndPort
			}
			if first > 0 && first <= last && last < 1<<16 {
				numbers[word] = append(numbers[word], span{first, last})
			}
		}
	}
	for _, word := range slices.Sorted(maps.Keys(numbers)) {
		conditions = append(conditions, fmt.Sprintf("%s dport { %s } ", word, list(merged(numbers[word]))))
	}
	return conditions
}

// named returns the name of the set of receivers with a port of that name. Its elements pair address and number,
// because each receiver defines the number of a name. For ingress the receivers are in the policy's namespace, so
// other namespaces' pods don't count against its limit.
func (b *builder) named(namespace string, direction networkingv1.PolicyType, name string, protocol corev1.Protocol) string {
	within := namespace
	if direction == networkingv1.PolicyTypeEgress {
		within = ""
	}
	return b.set(namespace, "ipv4_addr . inet_service", fmt.Sprintf("port %q %q %q", within, protocol, name), func() []string {
		found := map[string]bool{}
		for of, pods := range b.byNamespace {
			if within != "" && of != within {
				continue
			}
			for _, pod := range pods {
				for _, port := range pod.Ports {
					if port.Name != name || port.Protocol != protocol {
						continue
					}
					for _, addr := range pod.Addresses {
						found[fmt.Sprintf("%s . %d", addr, port.Number)] = true
					}
				}
			}
		}
		return slices.Sorted(maps.Keys(found))
	})
}

// A span includes both ends.
type span struct{ first, last int32 }

func (s span) String() string {
	if s.first == s.last {
		return fmt.Sprint(s.first)
	}
	return fmt.Sprintf("%d-%d", s.first, s.last)
}

// nft rejects overlapping sets.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(x, y span) int { return int(x.first - y.first) })
	var joined []span
	for _, s := range spans {
		if n := len(joined); n > 0 && s.first <= joined[n-1].last+1 {
			joined[n-1].last = max(joined[n-1].last, s.last)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

func list[T fmt.Stringer](items []T) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = item.String()
	}
	return strings.Join(texts, ", ")
}
