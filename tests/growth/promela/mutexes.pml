/* `two_threads` of ../mutexes.star: N ranks with two threads each, which lock a mutex of the rank, push to a list and unlock,
 * K times; then a join and a collective.
 *
 * Of the list, its length is kept.
 */
bool held[N], over[N];
byte pushes[N];
byte launched;

inline pushes_under_the_mutex() {
  do
  :: i < K ->
     atomic { !held[me] -> held[me] = true };
     pushes[me]++;
     held[me] = false;
     i++
  :: i == K -> break
  od
}

proctype other(byte me) {
  byte i;
  pushes_under_the_mutex();
  over[me] = true
}

proctype rank(byte me) {
  byte i;
  run other(me);
  pushes_under_the_mutex();
  over[me];
  launched++;
  launched == N
}

init { atomic { byte j; do :: j < N -> run rank(j); j++ :: j == N -> break od } }
