/* ../polls.star: N ranks with two streams each. A kernel on each stream, whose event the host looks at once; then a collective.
 *
 * A stream is a process, as kernels run beside the host. What the host saw is forgotten at once.
 */
bool complete[N * 2];
byte launched;

proctype stream(byte s) { complete[s] = true }

inline poll(s) { if :: complete[s] :: !complete[s] fi }

proctype rank(byte me) {
  atomic { run stream(me * 2); run stream(me * 2 + 1) };
  poll(me * 2);
  poll(me * 2 + 1);
  launched++;
  launched == N && complete[me * 2] && complete[me * 2 + 1]
}

init { atomic { byte j; do :: j < N -> run rank(j); j++ :: j == N -> break od } }
