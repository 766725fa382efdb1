package podpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// most limits the rules of one namespace's policies, evaluated for each group of pods, and the resulting nft
// statements. nft takes a tenth of a second for as many. Rules above the limit are left out: the pods stay isolated.
const most = 5_000

// mostSelectors limits the selectors of one namespace's policies, counted in requirements and values, those of peers
// once per group of pods: each rendering matches them against pods, which don't count, as they may be other tenants'.
const mostSelectors = 5_000

// group has the pods of one namespace that the same policies isolate in one direction.
type group struct {
	policies []*networkingv1.NetworkPolicy
	pods     []Pod
}

type side struct {
	direction networkingv1.PolicyType
	// own and peer are the nft expressions for the addresses of the isolated pod and of its peer.
	own, peer string
	chain     string
}

var sides = []side{
	{networkingv1.PolicyTypeEgress, "ip saddr", "ip daddr", "egress"},
	{networkingv1.PolicyTypeIngress, "ip daddr", "ip saddr", "ingress"},
}

// Rules returns the script that replaces the node's table, and the namespaces above the limit. It is
// deterministic.
func Rules(s State) (script string, over []string) {
	b := newBuilder(s)
	var jumps []string
	isolated := map[netip.Addr]bool{}
	for _, side := range sides {
		var targets []string
		for i, g := range b.groups(side.direction) {
			name := fmt.Sprintf("%s%d", side.chain, i)
			b.chain(name, side, g)
			for _, pod := range g.pods {
				for _, addr := range pod.Addresses {
					targets = append(targets, fmt.Sprintf("%s : jump %s", addr, name))
					isolated[addr] = true
				}
			}
		}
		if len(targets) > 0 {
			jumps = append(jumps, fmt.Sprintf("%s vmap { %s }", side.own, strings.Join(targets, ", ")))
		}
	}
	if len(jumps) == 0 {
		return Without(), nil
	}
	return b.script(isolated, jumps), slices.Sorted(maps.Keys(b.over))
}

// Without returns the script that deletes the table.
func Without() string { return fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", Table) }

type builder struct {
	State
	byNamespace map[string][]Pod
	policies    map[string][]selecting
	// sets maps a set's key to its name, "" for an empty set.
	sets            map[string]string
	declarations    strings.Builder
	chains          strings.Builder
	left, selectors map[string]int
	over            map[string]bool
}

func newBuilder(s State) *builder {
	b := &builder{
		State: s, byNamespace: map[string][]Pod{}, policies: map[string][]selecting{},
		sets: map[string]string{}, left: map[string]int{}, selectors: map[string]int{}, over: map[string]bool{},
	}
	for _, pod := range s.Pods {
		if len(pod.Addresses) > 0 {
			b.byNamespace[pod.Namespace] = append(b.byNamespace[pod.Namespace], pod)
		}
	}
	for _, pods := range b.byNamespace {
		slices.SortFunc(pods, func(x, y Pod) int { return x.Addresses[0].Compare(y.Addresses[0]) })
	}
	for _, policy := range s.Policies {
		b.policies[policy.Namespace] = append(b.policies[policy.Namespace], selecting{NetworkPolicy: policy})
		b.left[policy.Namespace], b.selectors[policy.Namespace] = most, mostSelectors
	}
	for namespace, policies := range b.policies {
		slices.SortFunc(policies, func(x, y selecting) int { return cmp.Compare(x.Name, y.Name) })
		b.policies[namespace] = b.read(namespace, policies)
	}
	return b
}

type selecting struct {
	*networkingv1.NetworkPolicy
	pods labels.Selector
}

// read parses the selectors of a namespace's policies. An invalid selector selects all pods, which are then isolated
// rather than open. One that selects all pods and permits nothing replaces the policies above the limit.
func (b *builder) read(namespace string, policies []selecting) []selecting {
	for i := range policies {
		p := &policies[i]
		if !b.afford(namespace, &p.Spec.PodSelector) {
			rest := &networkingv1.NetworkPolicy{}
			rest.Namespace = namespace
			for _, one := range policies[i:] {
				for _, side := range sides {
					if governs(one.NetworkPolicy, side.direction) && !slices.Contains(rest.Spec.PolicyTypes, side.direction) {
						rest.Spec.PolicyTypes = append(rest.Spec.PolicyTypes, side.direction)
					}
				}
			}
			return append(policies[:i], selecting{rest, labels.Everything()})
		}
		var err error
		if p.pods, err = metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err != nil {
			p.pods = labels.Everything()
		}
	}
	return policies
}

func (b *builder) afford(namespace string, selector *metav1.LabelSelector) bool {
	if selector == nil {
		return !b.over[namespace]
	}
	size := 1 + len(selector.MatchLabels)
	for _, e := range selector.MatchExpressions {
		size += 1 + len(e.Values)
	}
	if b.selectors[namespace] < size || b.over[namespace] {
		b.over[namespace] = true
		return false
	}
	b.selectors[namespace] -= size
	return true
}

func (b *builder) groups(direction networkingv1.PolicyType) []group {
	var groups []group
	for _, namespace := range slices.Sorted(maps.Keys(b.policies)) {
		var policies []selecting
		for _, policy := range b.policies[namespace] {
			if governs(policy.NetworkPolicy, direction) {
				policies = append(policies, policy)
			}
		}
		found := map[string]int{}
		for _, pod := range b.byNamespace[namespace] {
			if !pod.Local {
				continue
			}
			var key strings.Builder
			var selected []*networkingv1.NetworkPolicy
			for i, policy := range policies {
				if policy.pods.Matches(labels.Set(pod.Labels)) {
					fmt.Fprintf(&key, "%d,", i)
					selected = append(selected, policy.NetworkPolicy)
				}
			}
			if len(selected) == 0 {
				continue
			}
			at, known := found[key.String()]
			if !known {
				at = len(groups)
				found[key.String()] = at
				groups = append(groups, group{policies: selected})
			}
			groups[at].pods = append(groups[at].pods, pod)
		}
	}
	return groups
}

func (b *builder) chain(name string, side side, g group) {
	fmt.Fprintf(&b.chains, "\tchain %s {\n", name)
	for _, policy := range g.policies {
		if b.over[policy.Namespace] {
			break
		}
		for _, rule := range rulesOf(policy, side.direction) {
			for _, condition := range b.conditions(policy.Namespace, side, rule) {
				fmt.Fprintf(&b.chains, "\t\t%sreturn\n", condition)
			}
		}
	}
	b.chains.WriteString("\t\tdrop\n\t}\n")
}

// conditions returns nft conditions, one of which must match the rule.
func (b *builder) conditions(namespace string, side side, rule rule) []string {
	if !b.spend(namespace, 1+len(rule.peers)+len(rule.ports)) {
		return nil
	}
	var all []string
	ports := b.ports(namespace, side.direction, rule.ports)
	for _, peer := range b.peers(namespace, side.peer, rule.peers) {
		for _, port := range ports {
			if b.spend(namespace, 1) {
				all = append(all, peer+port)
			}
		}
	}
	return all
}

// spend deducts from a namespace's limit, and reports whether the limit permits it. Once a namespace is above the
// limit, it always returns false, so its rules end there.
func (b *builder) spend(namespace string, n int) bool {
	if b.left[namespace] < n || b.over[namespace] {
		b.over[namespace] = true
		return false
	}
	b.left[namespace] -= n
	return true
}

// script accepts packets of secondary networks, and those that a pod sends to itself by a service. It drops IPv6
// between pods: they have only link-local addresses, which no policy can name.
func (b *builder) script(isolated map[netip.Addr]bool, jumps []string) string {
	var own []string
	for _, addr := range slices.SortedFunc(maps.Keys(isolated), netip.Addr.Compare) {
		own = append(own, fmt.Sprintf("%s . %s", addr, addr))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%stable inet %s {\n%s%s", Without(), Table, b.declarations.String(), b.chains.String())
	fmt.Fprintf(&out, `	chain forward {
		type filter hook forward priority filter;
		iifname != %[1]q oifname != %[1]q accept
		meta nfproto ipv6 iifname %[1]q oifname %[1]q drop
		ct state established,related accept
		ip saddr %[2]s accept
		ip saddr . ip daddr { %[3]s } accept
		%[4]s
	}
}
`, b.Bridge, b.Host, strings.Join(own, ", "), strings.Join(jumps, "\n\t\t"))
	return out.String()
}
