/* `copies` of ../exchange.star: the exchange of exchange.pml, and on each rank's stream what it is for. The sender writes its
 * buffer and raises a semaphore on both sides; the receiver waits for its own, copies, and lowers both; the sender waits for that.
 *
 * A semaphore has a word on each side of an edge. `drained` is what the host waits for in a synchronize. `stale` is that a
 * handle or the contents of another round were read.
 */
byte key[N * 2], word[N * 2], outgoing[N], incoming[N], posted[N];
bool drained[N];
bool stale;
byte fences;

inline fetches(k) { key[k] != 0; got = key[k]; stale = stale || got != it; key[k] = 0 }

proctype stream(byte me) {
  byte it = 1, left = (me + N - 1) % N;
  do
  :: it <= K ->
     posted[me] >= it;
     outgoing[me] = it;
     word[me * 2] = 1;
     word[me * 2 + 1] = 1;
     word[left * 2 + 1] == 1;
     incoming[me] = outgoing[left];
     stale = stale || incoming[me] != it;
     word[left * 2 + 1] = 0;
     word[left * 2] = 0;
     word[me * 2] == 0;
     it++
  :: it > K -> break
  od;
  drained[me] = true
}

proctype host(byte me) {
  byte it = 1, left = (me + N - 1) % N, got;
  run stream(me);
  do
  :: it <= K ->
     key[me * 2] = it;
     key[left * 2 + 1] = it;
     fetches(me * 2 + 1);
     fetches(left * 2);
     posted[me] = it;
     it++
  :: it > K -> break
  od;
  drained[me];
  fences++;
  fences == N
}

init { atomic { byte j; do :: j < N -> run host(j); j++ :: j == N -> break od } }
